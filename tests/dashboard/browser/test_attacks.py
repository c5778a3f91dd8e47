"""Run folders and links are written by strangers; one test per way to misuse them."""

from __future__ import annotations

import base64
import re
import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from browser import serving, settled
from mutations import apply
from pages import SECTIONS
from playwright.sync_api import Page, Request, expect
from synthetic import read_rows, seal, write_rows, write_run

from evidence.layout import FIRST_EXAMPLES, LOG, PREDICTIONS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCRIPT = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
MARKDOWN = "**bold** [link](http://evil.example/) ![i](http://evil.example/i.png) :red[red] :material/home: $x^2$ `c`"
HOSTILE = f"{SCRIPT} {MARKDOWN} http://evil.example/auto"


def hostile_run(root: Path) -> str:
    """Write a run whose every text is an attack, in a folder whose name is one too."""
    name = "<img src=x onerror=window.pwned=1> **a** :red[b] [c](javascript:alert(1))"
    named: dict[str, Any] = {"model": {"name": HOSTILE}, "devices": {"kind": HOSTILE}, "code": {"branch": HOSTILE}}
    folder = write_run(
        root,
        "x",
        items=8,
        manifest=named | {"run_id": HOSTILE, "result": {"stopped_because": HOSTILE}},
        config={"model": {"name": HOSTILE}, "data": {"dataset": HOSTILE}, HOSTILE: 1},
        plan={"target": {"name": HOSTILE}},
    )
    answer = dict.fromkeys(("prompt", "output_text", "extracted_answer", "category"), HOSTILE)
    for file, texts in ((PREDICTIONS, answer), (LOG, {"message": HOSTILE})):
        write_rows(folder / file, [row | texts for row in read_rows(folder / file)])
    for place in range(4):
        pointer = f"/examples/0/tokens/{place}/text"
        apply(folder, {"file": FIRST_EXAMPLES, "pointer": pointer, "value": HOSTILE})
    seal(folder)
    folder.rename(root / name)
    return name


def harmless(page: Page) -> None:
    settled(page)
    page.wait_for_timeout(500)
    assert page.evaluate("window.pwned") is None
    main = page.locator("[data-testid=stMain]")
    assert main.locator("img[src=x], script, a[href*='evil'], a[href^='javascript']").count() == 0
    assert main.locator("[data-testid=stException]").count() == 0
    assert main.locator("strong", has_text=re.compile("^(bold|a)$")).count() == 0
    assert main.locator(".stMarkdownColoredText, .katex").count() == 0


def test_text_of_a_run_is_shown_as_it_stands_on_every_page(address: str, root: Path, page: Page) -> None:
    name = hostile_run(root)
    write_run(root, "good", items=8)
    for section in (*SECTIONS, "Play"):
        page.goto(f"{address}/run?view={section}&run={base(name)}")
        expect(page.get_by_role("heading", name="onerror")).to_be_visible()
        harmless(page)
    page.goto(f"{address}/compare?runs=good&runs={base(name)}")
    # The names of runs stand in what the curves say of the place under the mouse.
    page.get_by_role("figure", name="Training curves").locator(".nsewdrag").first.hover()
    harmless(page)
    paths = ["/", "/?group=Model&archived=true", "/compare?part=Scatter&colour=model", f"/package?runs={base(name)}"]
    for path in (*paths, "/launch", f"/run?run={base(HOSTILE)}"):
        page.goto(f"{address}{path}")
        harmless(page)


def base(text: str) -> str:
    return quote(text, safe="")


def test_no_name_in_a_link_leads_out_of_the_root(tmp_path: Path, page: Page) -> None:
    write_run(tmp_path, "secret")
    root = tmp_path / "runs"
    for name in ("good", "better"):
        write_run(root, name)
    (root / ".launch").mkdir()
    (root / "link").symlink_to(tmp_path / "secret")
    outside = ["../secret", "..%2Fsecret", "%2e%2e/secret", str(tmp_path / "secret")]
    names = [*outside, ".", "..", ".launch", "link", "a%00b"]
    with serving(root, tmp_path) as address:
        for name in names:
            page.goto(f"{address}/run?run={name}")
            expect(page.get_by_text("There is no run")).to_be_visible()
            page.goto(f"{address}/compare?runs=good&runs={name}")
            expect(page.get_by_text("Choose a run to compare with good")).to_be_visible()
        page.goto(f"{address}/package?runs={names[0]}&bundle=../../etc/passwd")
        expect(page.get_by_text("Select runs to package")).to_be_visible()


def test_what_is_larger_than_any_bundle_is_not_taken(address: str, root: Path, tmp_path: Path, page: Page) -> None:
    write_run(root, "good")
    small = tmp_path / "small.zip"
    small.write_bytes(b"PK")
    uploads: list[Request] = []
    page.on("request", lambda request: uploads.append(request) if request.method == "PUT" else None)
    page.goto(f"{address}/package?part=Verify")
    page.locator("input[type=file]").set_input_files(small)
    expect(page.locator(".tp-sign", has_text="not valid")).to_be_visible()
    # A forger asks without the page, whose own limit is only a courtesy.
    answer = page.evaluate(
        """async ([url, headers, size]) => {
          const form = new FormData();
          form.append('file', new Blob([new Uint8Array(size)]), 'large.zip');
          delete headers['content-type'];
          try { return (await fetch(url, {method: 'PUT', headers, body: form})).status } catch { return 'cut off' }
        }""",
        [uploads[0].url, uploads[0].headers, 201 * 2**20],
    )
    assert answer in {400, 413, "cut off"}
    assert not list(root.parent.rglob("*.zip"))


def status(port: int, method: str, path: str, **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body=b"--x--\r\n" if method == "PUT" else None, headers=headers)
    answer = connection.getresponse().status
    connection.close()
    return answer


def handshake(port: int, host: str, origin: str | None) -> int:
    """Ask for the page's socket as a browser does and return the status of the answer."""
    key = base64.b64encode(b"0123456789abcdef").decode()
    headers = {"Host": f"{host}:{port}", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key}
    origins = {} if origin is None else {"Origin": origin}
    return status(port, "GET", "/_stcore/stream", **headers, **{"Sec-WebSocket-Version": "13"}, **origins)


def test_another_web_page_cannot_open_the_socket_that_presses_start(address: str) -> None:
    port = int(address.rpartition(":")[2])
    assert handshake(port, "127.0.0.1", f"http://127.0.0.1:{port}") == 101
    assert handshake(port, "127.0.0.1", "http://evil.example") == 403
    # DNS rebinding: the stranger's name resolves to this machine, so host and origin agree.
    assert handshake(port, "evil.example", f"http://evil.example:{port}") == 403
    assert handshake(port, "evil.example", None) == 403


OUTSIDE = (
    "/static/../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/app/static/../app.py",
    "/component/..%2f..%2f..%2fetc/passwd/x",
    "/media/..%2f..%2fetc%2fpasswd",
    "//etc/passwd",
    "/static/%00",
)


def test_no_address_leads_out_of_the_program_and_no_upload_is_taken_without_its_token(address: str) -> None:
    port = int(address.rpartition(":")[2])
    assert [status(port, "GET", path) for path in OUTSIDE] == [400] * len(OUTSIDE)
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for origin in ({}, {"Origin": address}, {"Origin": "http://evil.example"}):
        assert status(port, "PUT", "/_stcore/upload_file/session/file", **form, **origin) == 403


def test_only_this_machine_can_connect(address: str) -> None:
    found = [entry for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == socket.AF_INET]
    others = [entry.address for entry in found if not entry.address.startswith("127.")]
    if not others:
        pytest.skip("This machine has no other address than its own loopback.")
    for other in others:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, int(address.rpartition(":")[2])), timeout=5)
