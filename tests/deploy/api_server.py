"""An API server with nothing but objects to look up: what Helm asks while it renders."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.deploy.chart import Object

# Of each version the kinds that tests render: Helm asks whether the server knows them.
KINDS = {
    "v1": ("ConfigMap", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment", "StatefulSet"),
    "networking.k8s.io/v1": ("NetworkPolicy",),
    "policy/v1": ("PodDisruptionBudget",),
}


@contextmanager
def api_server(
    objects: list[Object], home: Path, namespace: str = "shop", forbidden: str = ""
) -> Iterator[list[str]]:
    """Serve objects of a namespace; gives the options by which `helm template` looks them up.

    A kind whose plural is `forbidden` may be got by name, not listed.
    """
    pages = _discovery() | _lists(objects, f"namespaces/{namespace}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            found = pages.get(self.path.partition("?")[0])
            code, reason = (200, "") if found else (404, "NotFound")
            if forbidden and self.path.partition("?")[0].endswith(f"/{forbidden}"):
                found, code, reason = None, 403, "Forbidden"
            failed = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            text = json.dumps(found or {**failed, "reason": reason, "code": code}).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (file := home / "kubeconfig").write_text(_kubeconfig(server.server_port), "utf-8")
        yield [f"--kubeconfig={file}", "--dry-run=server", "--disable-openapi-validation"]
        server.shutdown()


def _kubeconfig(port: int) -> str:
    cluster = {"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    named = {"clusters": [cluster], "contexts": [context], "users": [{"name": "a", "user": {}}]}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "a", **named})


def _discovery() -> dict[str, Object]:
    versions = [{"groupVersion": version, "version": "v1"} for version in KINDS if version != "v1"]
    groups = [
        {"name": each["groupVersion"].partition("/")[0], "versions": [each]} for each in versions
    ]
    return {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
        **{_root(version): _resources(version) for version in KINDS},
    }


def _resources(version: str) -> Object:
    plain = {"namespaced": True, "verbs": ["get", "list"]}
    found = [{"name": _plural(kind), "kind": kind, **plain} for kind in KINDS[version]]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": found}


def _lists(objects: list[Object], namespace: str) -> dict[str, Object]:
    """Return the page of each object, and of each kind that has some."""
    pages: dict[str, Object] = {}
    for each in objects:
        version, kind = each["apiVersion"], each["kind"]
        place = f"{_root(version)}/{namespace}/{_plural(kind)}"
        empty = {"apiVersion": version, "kind": f"{kind}List", "items": []}
        pages.setdefault(place, empty)["items"].append(each)
        pages[f"{place}/{each['metadata']['name']}"] = each
    return pages


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _plural(kind: str) -> str:
    return f"{kind[:-1]}ies".lower() if kind.endswith("y") else f"{kind}s".lower()
