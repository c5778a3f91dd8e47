"""One HTTP request with a time limit and a size limit."""

from __future__ import annotations

from urllib.parse import urlsplit

from schemas.formats import visible

TIMEOUT_SECONDS = 10.0
MAX_RESPONSE_BYTES = 1 << 20


class FetchError(Exception):
    """A server could not be reached or answered something else; the message is a verb phrase about the server."""


def is_http_url(url: str) -> bool:
    """Return whether a text is an `http` or `https` address with a host and no control characters."""
    try:
        parts = urlsplit(url)
        has_valid_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    return has_valid_port and parts.scheme in {"http", "https"} and bool(parts.hostname) and visible(url) == url


def fetch(url: str, body: bytes | None = None, content_type: str = "text/plain") -> bytes:
    """Return the answer to a GET request, or to a POST request if there is a body.

    Raises:
        FetchError: The server cannot be reached, reports an error or answers with too much.
    """
    import http.client
    import urllib.error
    import urllib.request

    scheme, _, rest = url.partition("://")
    if scheme == "https":
        request = urllib.request.Request(f"https://{rest}", body)
    else:
        request = urllib.request.Request(f"http://{rest}", body)
    request.add_header("Content-Type", content_type)
    try:
        with urllib.request.build_opener().open(request, timeout=TIMEOUT_SECONDS) as response:
            content: bytes = response.read(MAX_RESPONSE_BYTES + 1)
    except urllib.error.HTTPError as error:
        failure = f"answered with status {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        is_timeout = isinstance(reason, TimeoutError)
        failure = f"did not answer within {TIMEOUT_SECONDS:.0f} seconds" if is_timeout else ""
        failure = failure or f"cannot be reached: {visible(str(reason) or type(error).__name__)}"
    else:
        if len(content) <= MAX_RESPONSE_BYTES:
            return content
        failure = f"answered with more than {MAX_RESPONSE_BYTES:,} bytes"
    raise FetchError(failure)
