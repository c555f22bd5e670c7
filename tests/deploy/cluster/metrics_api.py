"""The API of external metrics, answered by this process: what an adapter or KEDA would serve."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

from tests.deploy.cluster.kube import Kube, Refused, until

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
SERVICE = "duebridge-test-metrics"


def is_taken(kube: Kube) -> bool:
    """Whether the cluster has somebody who serves external metrics."""
    try:
        kube.get("apiservice", f"{VERSION}.{GROUP}")
    except Refused:
        return False
    return True


@contextmanager
def external_metric(kube: Kube, host: str, name: str, value: Callable[[], int]) -> Iterator[None]:
    """Serve one metric on an address that the API server reaches."""
    authority = trustme.CA()
    server = ThreadingHTTPServer((host, 0), _handler(name, value))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    address = f"{SERVICE}.{kube.namespace}.svc"
    authority.issue_cert(address).configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    try:
        kube.apply(*_objects(kube.namespace, host, server.server_port, bundle))
        until(lambda: _answers(kube), "the API of external metrics", 30)
        yield
    finally:
        kube.kubectl("delete", "apiservice", f"{VERSION}.{GROUP}", "--ignore-not-found")
        server.shutdown()
        server.server_close()
        thread.join()


def _answers(kube: Kube) -> bool:
    try:
        return bool(kube.kubectl("get", "--raw", f"/apis/{GROUP}/{VERSION}"))
    except Refused:
        return False


def _handler(name: str, value: Callable[[], int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_list = self.path.partition("?")[0].rstrip("/") == f"/apis/{GROUP}/{VERSION}"
            body = json.dumps(_resources(name) if is_list else _value(name, value())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: the controller asks every few seconds."""

    return Handler


def _resources(name: str) -> dict[str, Any]:
    metric = {"name": name, "singularName": "", "namespaced": True, "verbs": ["get"]}
    metric["kind"] = "ExternalMetricValueList"
    about = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
    return {**about, "resources": [metric]}


def _value(name: str, value: int) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}
    about = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
    return {**about, "items": [item]}


def _objects(namespace: str, host: str, port: int, bundle: str) -> Iterator[dict[str, Any]]:
    metadata = {"name": SERVICE, "namespace": namespace}
    ports = [{"name": "https", "port": 443, "targetPort": port}]
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}
    about = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
    labelled = {**metadata, "labels": {"kubernetes.io/service-name": SERVICE}}
    ends = {"ports": [{"name": "https", "port": port}], "endpoints": [{"addresses": [host]}]}
    yield {**about, **ends, "metadata": labelled}
    about = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    spec = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"service": {"name": SERVICE, "namespace": namespace, "port": 443}, "caBundle": bundle}
    yield {**about, "metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec}
