"""Rewrites the committed files: `python -m trainer.data.dev_reasoning`. The same bytes every time."""

from pathlib import Path

from trainer.data.dev_reasoning.sets import FOLDER, file_texts


def main(folder: Path = FOLDER) -> None:
    """Write the dataset and the evaluation sets into a folder."""
    for name, text in file_texts().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
