"""Plotly figures of curves, plans, scores and machine metrics."""
