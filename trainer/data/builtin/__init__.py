"""Built-in datasets and evaluation sets, and their generators."""

from pathlib import Path

FOLDER = Path(__file__).parent
