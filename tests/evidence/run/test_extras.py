"""How an extra is added to an installation, from where it came: told from what pip and uv write beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.extras import install_command

CAME_FROM = {
    "an index": (None, 'pip install "trainproof[train,dashboard]"'),
    "a folder": (
        '{"dir_info": {}, "url": "file:///home/me/train%20proof"}',
        'pip install "/home/me/train proof[train,dashboard]"',
    ),
    "a folder that is worked on": (
        '{"dir_info": {"editable": true}, "url": "file:///home/me/trainproof"}',
        'pip install --editable "/home/me/trainproof[train,dashboard]"',
    ),
    "a repository": (
        '{"url": "https://example.org/trainproof.git", "vcs_info": {"vcs": "git", "commit_id": "47b000e7b4"}}',
        'pip install "trainproof[train,dashboard] @ git+https://example.org/trainproof.git@47b000e7b4"',
    ),
    "an archive": (
        '{"url": "https://example.org/trainproof-0.1.0.zip", "archive_info": {}}',
        'pip install "trainproof[train,dashboard] @ https://example.org/trainproof-0.1.0.zip"',
    ),
}


@pytest.mark.parametrize("origin", CAME_FROM)
def test_an_extra_comes_from_where_the_rest_came(origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated, command = CAME_FROM[origin]
    metadata = tmp_path / "trainproof-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trainproof\nVersion: 0.1.0\n")
    if stated:
        (metadata / "direct_url.json").write_text(stated)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("train", "dashboard") == command
