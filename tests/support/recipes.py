"""Read the recipes of docs/contributing/extending.md: new files, changed lines and commands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "extending.md"
_BLOCK = re.compile(
    r"(?:^`(?P<file>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One section of the page."""

    title: str
    text: str

    def follow(self, root: Path) -> list[str]:
        commands: list[str] = []
        for block in _BLOCK.finditer(self.text):
            if block["language"] == "sh":
                commands += block["text"].splitlines()
            elif block["language"] == "diff":
                change(root / block["file"], block["text"])
            else:
                path = root / block["file"]
                assert not path.exists(), f"{path} is new in the recipe, and there"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block["text"], "utf-8")
        return commands


def recipes() -> list[Recipe]:
    _, *sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return [Recipe(title=section.partition("\n")[0], text=section) for section in sections]


def new_files() -> Iterator[str]:
    """Yield the files that the page has in full, which the repository does not have."""
    for recipe in recipes():
        for block in _BLOCK.finditer(recipe.text):
            if block["file"] and block["language"] != "diff":
                yield block["file"]


def change(path: Path, diff: str) -> None:
    """Replace the lines of a diff, which stand in the file once."""
    lines = diff.splitlines()
    assert {line[:1] for line in lines} <= {" ", "-", "+"}
    before = "\n".join(line[1:] for line in lines if line[0] != "+") + "\n"
    after = "\n".join(line[1:] for line in lines if line[0] != "-") + "\n"
    text = path.read_text("utf-8")
    assert f"\n{text}".count(f"\n{before}") == 1, f"these lines are not once in {path}:\n{before}"
    path.write_text(f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:], "utf-8")
