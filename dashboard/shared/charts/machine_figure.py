"""Memory, load and data wait over the time of a run, as three Plotly panels with one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.charts.curves import stack_panels
from dashboard.shared.charts.theme import Palette, unit_of_bytes, unit_of_seconds

Row = Mapping[str, Any]

_PANEL_PIXELS = 110
_DASHES = ("solid", "dash", "dot", "dashdot")


def draw(rows: Sequence[Row], colours: Palette) -> go.Figure:
    """Draw the rows of system.jsonl."""
    divisor, unit = unit_of_bytes(max(row["host_memory_bytes"] for row in rows))
    seconds = [row["clock_seconds"] - rows[0]["clock_seconds"] for row in rows]
    second_divisor, time_unit = unit_of_seconds(max(seconds))
    panels = [f"Memory ({unit})", "Load (%)", "Waiting for data (%)"]
    figure = stack_panels(colours, panels, [_PANEL_PIXELS] * len(panels), legend_rows=1)
    for index, (panel, name, values) in enumerate(lines(rows)):
        figure.add_scatter(
            x=[second / second_divisor for second in seconds],
            y=[None if value is None else value / divisor if panel == 1 else value for value in values],
            name=name,
            line={"color": colours.tones[("fair", "good", "quiet")[index % 3]], "dash": _DASHES[index % 4]},
            yaxis=f"y{panel}",
            hovertemplate="%{y:.4~g}",
        )
        figure.update_layout({f"yaxis{panel}": {"rangemode": "tozero"}})
    figure.update_xaxes(title_text=f"{time_unit} since the first row")
    return figure


def lines(rows: Sequence[Row]) -> list[tuple[int, str, list[float | None]]]:
    """Return the number of the panel, the name and the values of each line."""
    waits = [None if row["data_wait_fraction"] is None else 100 * row["data_wait_fraction"] for row in rows]
    found = [
        (1, "host memory", [row["host_memory_used_bytes"] for row in rows]),
        (1, "memory of this process", [row["process_memory_bytes"] for row in rows]),
        (2, "CPU load", [row["host_cpu_percent"] for row in rows]),
        (3, "waiting for data", waits),
    ]
    for panel, what, key in (
        (1, "memory", "device_memory_used_bytes"),
        (2, "load", "device_utilisation_percent"),
    ):
        for number in range(max(len(row[key]) for row in rows)):
            values = [row[key][number] if number < len(row[key]) else None for row in rows]
            found.append((panel, f"{what} of device {number}", values))
    return found


def describe(rows: Sequence[Row]) -> str:
    """Return the last temperature and power of each device, and which sensors are missing."""
    last = rows[-1]
    units = {"device_temperature_celsius": "°C", "device_power_watts": "W"}
    readings = [
        f"device {number}: {value:,.0f} {unit}"
        for key, unit in units.items()
        for number, value in enumerate(last[key])
        if value is not None
    ]
    sensors = {"utilisation": "device_utilisation_percent", "temperature": "device_temperature_celsius"}
    sensors |= {"power": "device_power_watts", "memory": "device_memory_used_bytes"}
    missing = ", ".join(name for name, key in sensors.items() if not last[key])
    found = [f"Now {'; '.join(readings)}."] if readings else []
    return " ".join([*found, *([f"No device sensor for {missing}."] if missing else [])])
