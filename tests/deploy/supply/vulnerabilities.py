"""A vulnerability service on a free port, which answers as OSV does, or fails as it may."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

KNOWN = {
    "id": "GHSA-test-0001",
    "summary": "a hole",
    "affected": [{"package": {"name": "redis", "ecosystem": "PyPI"}}],
}


def clean(_: str) -> dict[str, Any]:
    return {}


def redis_is_vulnerable(name: str) -> dict[str, Any]:
    return {"vulns": [KNOWN]} if name == "redis" else {}


def nonsense(_: str) -> dict[str, Any]:
    return {"sorry": "another program"}


def down(_: str) -> dict[str, Any] | None:
    return None


@contextmanager
def service(answer: Any) -> Iterator[str]:
    """Yield the URL of a service that answers each package so; None is 503."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = answer(asked["package"]["name"])
            code = HTTPStatus.SERVICE_UNAVAILABLE if said is None else HTTPStatus.OK
            body = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join(10)
