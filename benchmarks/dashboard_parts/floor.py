"""The least that Streamlit can do: a table of 2,000 rows and ten curves of 1,000 points, made of nothing."""

import numpy as np
import pandas as pd
import streamlit as st

ROWS, CURVES, POINTS = 2000, 10, 1000

st.set_page_config(layout="wide")


@st.cache_data
def table() -> pd.DataFrame:
    """Return ten columns of numbers and two of text."""
    numbers = np.random.default_rng(0).random((ROWS, 10))
    frame = pd.DataFrame(numbers, columns=[f"figure {number}" for number in range(10)])
    return frame.assign(run=[f"run-{number:05d}" for number in range(ROWS)], status="succeeded")


@st.cache_data
def curves() -> list[pd.DataFrame]:
    """Return a frame for each curve."""
    noise = np.random.default_rng(1).random((CURVES, POINTS))
    return [pd.DataFrame({"x": np.arange(POINTS), "y": row}) for row in noise]


st.checkbox("Rerun")
st.dataframe(table())
st.echarts_chart(
    {
        "animation": False,
        "dataset": [{"source": frame} for frame in curves()],
        "xAxis": {"type": "value"},
        "yAxis": {"type": "value"},
        "series": [
            {"type": "line", "datasetIndex": number, "encode": {"x": "x", "y": "y"}, "showSymbol": False}
            for number in range(CURVES)
        ],
    },
    height=400,
)
