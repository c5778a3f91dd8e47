"""A server that answers the real `kaggle` command as kaggle.com does, for one account.

The command reaches it as its proxy: `environment()` makes it take http://localhost for kaggle.com. Requests are POSTs
to /api/v1/<service>/<Method>. A kernel that is pushed is a `Session`, which a test's function runs in a thread.
"""

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

USER = "ada"


@dataclass
class Session:
    """A version of a kernel and what it has done."""

    request: dict[str, Any]
    number: int
    datasets: dict[str, dict[str, bytes]]
    status: str = "QUEUED"
    failure: str = ""
    lines: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self, status: str = "COMPLETE", failure: str = "") -> None:
        self.status, self.failure = status, failure
        self.ended.set()


@dataclass
class FakeKaggle:
    """State of the service. `troubles` replaces the next answers of a method."""

    run: Callable[[Session], None] = lambda session: session.end()
    tpu_used: float = 3600.0
    datasets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    sessions: dict[str, list[Session]] = field(default_factory=dict)
    troubles: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    address: str = ""

    def environment(self) -> dict[str, str]:
        """Variables with which the command talks to this server, as a user who has logged in."""
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "KAGGLE_USERNAME": USER,
            "KAGGLE_KEY": "0" * 32,
            "HTTP_PROXY": self.address,
            "http_proxy": self.address,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def answer(self, method: str, request: dict[str, Any]) -> Any:
        """Call the function of a method of the API: `SaveKernel` is `save_kernel`."""
        return getattr(self, re.sub("(?<!^)([A-Z])", r"_\1", method).lower())(request)

    def get_accelerator_quota_statistics(self, _: dict[str, Any]) -> dict[str, Any]:
        def quota(used: float, total: float) -> dict[str, Any]:
            return {"timeUsed": f"{used:.0f}s", "timeReserved": "0s", "totalTimeAllowed": f"{total:.0f}s"}

        gpu, tpu = quota(0, 30 * 3600), quota(self.tpu_used, 20 * 3600)
        return {"quotaRefreshTime": "2026-12-05T00:00:00Z", "gpuQuota": gpu, "tpuQuota": tpu}

    def start_blob_upload(self, request: dict[str, Any]) -> dict[str, Any]:
        token = f"{len(self.blobs)}-{request['name']}"
        self.blobs[token] = b""
        return {"token": token, "createUrl": f"http://localhost/blobs/{token}"}

    def get_dataset_status(self, request: dict[str, Any]) -> Any:
        found = f"{request['ownerSlug']}/{request['datasetSlug']}" in self.datasets
        return {"status": "READY"} if found else 403

    def create_dataset(self, request: dict[str, Any]) -> dict[str, Any]:
        name = f"{request['ownerSlug']}/{request['slug']}"
        assert request["isPrivate"] is True, "nobody else sees a dataset"
        tokens = [each["token"] for each in request["files"]]
        self.datasets[name] = {token.partition("-")[2]: self.blobs[token] for token in tokens}
        return {"ref": name, "url": f"https://www.kaggle.com/datasets/{name}", "status": "Ok", "error": ""}

    def save_kernel(self, request: dict[str, Any]) -> dict[str, Any]:
        slug = request["slug"]
        names = request.get("datasetDataSources", [])
        attached = {name: self.datasets[name] for name in names if name in self.datasets}
        versions = self.sessions.setdefault(slug, [])
        session = Session(request, len(versions) + 1, attached)
        versions.append(session)
        threading.Thread(target=self._run, args=(session,), daemon=True).start()
        url = f"https://www.kaggle.com/code/{slug}"
        answer = {"ref": f"/code/{slug}", "url": url, "versionNumber": session.number, "error": ""}
        return {**answer, "invalidDatasetSources": [name for name in names if name not in attached]}

    def _run(self, session: Session) -> None:
        session.status = "RUNNING"
        self.run(session)

    def _session(self, request: dict[str, Any]) -> Session | None:
        versions = self.sessions.get(f"{request['userName']}/{request['kernelSlug']}", [])
        label = request.get("versionLabel")
        return next((one for one in reversed(versions) if not label or str(one.number) in str(label)), None)

    def get_kernel_session_status(self, request: dict[str, Any]) -> Any:
        session = self._session(request)
        return 403 if session is None else {"status": session.status, "failureMessage": session.failure}

    def list_kernel_session_output(self, request: dict[str, Any]) -> Any:
        if (session := self._session(request)) is None:
            return 403
        slug = f"{request['userName']}/{request['kernelSlug']}/{session.number}"
        names = sorted(session.files)
        start, size = int(request.get("pageToken") or 0), 2
        page = [{"url": f"http://localhost/output/{slug}/{n}", "fileName": n} for n in names[start : start + size]]
        more = str(start + size) if start + size < len(names) else ""
        return {
            "files": page,
            "log": json.dumps([{"data": f"{line}\n"} for line in session.lines]),
            "nextPageToken": more,
        }

    def delete_kernel(self, request: dict[str, Any]) -> dict[str, Any]:
        for session in self.sessions.pop(f"{request['userName']}/{request['kernelSlug']}", []):
            session.end("CANCEL_ACKNOWLEDGED")
        return {}


class _Handler(BaseHTTPRequestHandler):
    kaggle: FakeKaggle
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, content: bytes, kind: str = "application/json", status: int = 200, cut: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - cut])
        if cut:
            self.close_connection = True

    def do_POST(self) -> None:
        method = urlparse(self.path).path.rpartition("/")[2]
        self.kaggle.calls.append(method)
        request = json.loads(self._body() or b"{}")
        trouble = self.kaggle.troubles.get(method)
        answer = trouble.pop(0) if trouble else None
        if answer == "lost":  # it arrives, and the answer does not
            self.kaggle.answer(method, request)
            self.close_connection = True
            self.connection.close()
            return
        answer = self.kaggle.answer(method, request) if answer is None else answer
        if isinstance(answer, int) and answer >= 500:  # a page of the load balancer
            self._send(b"<html>Try again later.</html>", "text/html", status=answer)
        elif isinstance(answer, int):
            self._send(json.dumps({"code": answer, "message": f"{answer} answer"}).encode(), status=answer)
        else:
            self._send(json.dumps(answer).encode())

    def do_PUT(self) -> None:
        self.kaggle.blobs[urlparse(self.path).path.rpartition("/")[2]] = self._body()
        self._send(b"{}")

    def do_GET(self) -> None:
        url = urlparse(self.path)
        parts = url.path.strip("/").split("/")
        if parts[0] == "output":
            [session] = [one for one in self.kaggle.sessions[f"{parts[1]}/{parts[2]}"] if str(one.number) == parts[3]]
            trouble = self.kaggle.troubles.get("output")
            self._send(
                session.files["/".join(parts[4:])], "application/octet-stream", cut=trouble.pop() if trouble else 0
            )
            return
        owner, slug = parts[-2:]
        session = self.kaggle._session(
            {
                "userName": owner,
                "kernelSlug": slug,
                "versionLabel": "".join(parse_qs(url.query).get("versionLabel", [])),
            }
        )
        if session is None:
            self._send(b"{}", status=403)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        sent = 0
        with suppress(OSError):
            while True:
                is_last = session.ended.wait(0.05)
                events = [json.dumps({"data": f"{line}\n"}) for line in session.lines[sent:]]
                sent += len(events)
                for event in events + ["END_OF_LOG"] * is_last:
                    content = f"data: {event}\n\n".encode()
                    self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
                self.wfile.flush()
                if is_last:
                    self.wfile.write(b"0\r\n\r\n")
                    return


def serve(kaggle: FakeKaggle) -> ThreadingHTTPServer:
    """Serve in a thread until `shutdown` is called."""
    handler = type("Handler", (_Handler,), {"kaggle": kaggle})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    kaggle.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
