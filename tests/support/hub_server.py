"""A hub on this machine: the part of the Hugging Face hub's protocol that fetching a model uses."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves one repository, `owner/name`, out of a folder, at one commit that the branch main is at."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.name, self.folder = name, folder
        self.fetched: list[str] = []
        """Files that were sent, in order."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        path = unquote(urlparse(self.path).path).strip("/")
        name, files = self.server.name, sorted(file.name for file in self.server.folder.iterdir())
        if path in (f"api/models/{name}", *(f"api/models/{name}/revision/{at}" for at in ("main", COMMIT))):
            known = {"id": name, "modelId": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
            return self.send(json.dumps(known).encode(), {"Content-Type": "application/json"}, with_body=with_body)
        if path.startswith(f"api/models/{name}/tree/"):
            whole = [self.server.folder / file for file in files]
            tree = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)} for f in whole]
            return self.send(json.dumps(tree).encode(), {"Content-Type": "application/json"}, with_body=with_body)
        for at in ("main", COMMIT):
            file = path.removeprefix(f"{name}/resolve/{at}/")
            if file in files:
                if with_body:
                    self.server.fetched.append(file)
                whole = self.server.folder / file
                headers = {"ETag": f'"{etag(whole)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
                return self.send(whole.read_bytes(), headers, with_body=with_body)
        code = "EntryNotFound" if path.startswith(f"{name}/resolve/") else "RepoNotFound"
        return self.send(b"", {"X-Error-Code": code}, with_body=with_body, status=404)

    def send(self, body: bytes, headers: dict[str, str], *, with_body: bool, status: int = 200) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def etag(file: Path) -> str:
    """Return what names a file's content, as git does."""
    content = file.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@contextmanager
def hub_of(name: str, folder: Path) -> Iterator[Hub]:
    """Serve a folder as a repository until the block ends."""
    with Hub(name, folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
