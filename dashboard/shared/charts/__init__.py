"""Curves: which points and panels, as ECharts, as SVG and as CSV."""
