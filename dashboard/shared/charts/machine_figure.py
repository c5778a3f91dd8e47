"""The machine at work: memory, load and waiting for data over the time of a run, three panels with one axis of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.plan_figures import Palette, new_figure, unit_of_bytes, unit_of_seconds

_PIXELS = 420
_PANELS = {"Memory": (0.72, 0.96), "Load": (0.36, 0.60), "Waiting for data": (0.0, 0.24)}
_STROKES = ("solid", "dash", "dot", "dashdot")
Row = Mapping[str, Any]


def draw(rows: Sequence[Row], colours: Palette) -> go.Figure:
    """Return the picture of rows of system.jsonl."""
    picture = new_figure(colours, height=_PIXELS)
    seconds = [row["clock_seconds"] - rows[0]["clock_seconds"] for row in rows]
    by_time, time_unit = unit_of_seconds(max(seconds))
    divisor, unit = unit_of_bytes(max(row["host_memory_bytes"] for row in rows))
    for place, (panel, domain) in enumerate(_PANELS.items(), start=1):
        said = {"Memory": unit}.get(panel, "%")
        for index, (name, values) in enumerate(lines(rows, panel)):
            scaled = [None if value is None else value / divisor if panel == "Memory" else value for value in values]
            stroke = {"color": colours.tones[("fair", "good", "quiet")[index % 3]], "dash": _STROKES[index % 4]}
            trace = {"x": [second / by_time for second in seconds], "y": scaled, "name": f"{name}, {said}"}
            picture.add_scatter(**trace, mode="lines+markers", line=stroke, marker_size=4, yaxis=f"y{place}")
        axis = {"domain": domain, "anchor": "x", "rangemode": "tozero", "title": {"text": said}}
        picture.update_layout({f"yaxis{place}": axis})
        title = {"text": f"<b>{panel}</b>", "x": 0, "y": domain[1] + 0.04, "xref": "paper", "yref": "paper"}
        picture.add_annotation(**title, showarrow=False, xanchor="left")
    picture.update_xaxes(title_text=f"{time_unit} since the first row", anchor="y3")
    picture.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.2})
    return picture


def lines(rows: Sequence[Row], panel: str) -> Iterator[tuple[str, list[float | None]]]:
    """Yield the lines of a panel that have a value, with their names."""
    plain = {
        "Memory": {"host": "host_memory_used_bytes", "this process": "process_memory_bytes"},
        "Load": {"processors": "host_cpu_percent"},
    }.get(panel, {})
    for name, key in plain.items():
        yield name, [row[key] for row in rows]
    if panel == "Waiting for data":
        waits = [row["data_wait_fraction"] for row in rows]
        yield "share of time", [None if wait is None else 100 * wait for wait in waits]
        return
    key = "device_memory_used_bytes" if panel == "Memory" else "device_utilisation_percent"
    for number in range(max(len(row[key]) for row in rows)):
        yield f"device {number}", [row[key][number] if number < len(row[key]) else None for row in rows]


def describe(rows: Sequence[Row]) -> str:
    """Return the last row in words: what each sensor measures, and what none does."""
    last = rows[-1]
    units = {"device_temperature_celsius": "°C", "device_power_watts": "W"}
    told = [
        f"device {number}: {value:,.0f} {unit}"
        for key, unit in units.items()
        for number, value in enumerate(last[key])
        if value is not None
    ]
    missing = {"utilisation": "device_utilisation_percent", "temperature": "device_temperature_celsius"}
    missing |= {"power": "device_power_watts", "memory": "device_memory_used_bytes"}
    silent = [name for name, key in missing.items() if not last[key]]
    lacks = f"No sensor tells the device's {', '.join(silent)}." if silent else ""
    return " ".join([*([f"Now {'; '.join(told)}."] if told else []), *([lacks] if lacks else [])])
