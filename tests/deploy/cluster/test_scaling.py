"""1 → 5 → 1 on what will be due: workers are there before the burst, and go after it."""

import base64
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trustme

from tests.deploy.cluster.bridge import Bridge
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


pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

DELIVERED = 'duebridge_delivered_total{route="kafka"}'
METRIC = "duebridge_due_within_60s"
BURST = 50_000
SHARED_WITHIN_S = 30.0  # seconds pass while kubectl looks once, on a busy machine
AT_ONCE = {"stabilizationWindowSeconds": 0}
FAST = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 5}]}
BEHAVIOR = {"scaleUp": AT_ONCE, "scaleDown": {**AT_ONCE, **FAST}}


def workers(bridge: Bridge) -> int:
    found = bridge.kube.get("deployment", bridge.name)
    return int(found["status"].get("readyReplicas", 0))


def scale(bridge: Bridge, count: int) -> None:
    bridge.kube.kubectl("scale", f"deployment/{bridge.name}", f"--replicas={count}")
    until(lambda: workers(bridge) == len(bridge.pods()) == count, f"{count} workers")


def test_worker_that_is_added_and_removed_shares_the_work_and_doubles_nothing(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    bridge.install(replicas=1)
    first = bridge.pod()
    with bridge.under_load():
        scale(bridge, 2)
        [added] = {each["metadata"]["name"] for each in bridge.pods()} - {first}
        took_s = until(
            lambda: bridge.metric(DELIVERED, added) > 0, "its first message", SHARED_WITHIN_S
        )
        scale(bridge, 1)
    bridge.settle_once()
    say(f"worker added under load: it delivers {took_s:.1f} s after it was seen ready")


def test_upgrade_that_switches_scaling_on_keeps_the_workers(bridge: Bridge) -> None:
    """Without an adapter the autoscaler knows no metric, and leaves the number as it is."""
    bridge.install(replicas=3)
    bridge.install(scaling={"mode": "hpa", "max": 5})
    assert workers(bridge) == 3
    bridge.install(podAnnotations={"duebridge/test": "another"})
    assert workers(bridge) == 3


def test_scale_follows_what_will_be_due_and_loses_nothing(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    host = os.environ.get("DUEBRIDGE_K8S_HOST")
    if not host:
        pytest.skip("set DUEBRIDGE_K8S_HOST: the API server asks this process for the metric")
    if is_taken(bridge.kube):
        pytest.skip("the cluster has an adapter of external metrics, which is not ours to replace")
    scaling = {"mode": "hpa", "max": 5, "envelopesPerWorker": BURST // 5, "behavior": BEHAVIOR}
    with external_metric(bridge.kube, host, METRIC, bridge.due_within_60s):
        bridge.install(scaling=scaling)
        assert workers(bridge) == 1
        bridge.schedule(BURST, delay="50s")
        due_at = time.monotonic() + 50
        up_s = until(lambda: workers(bridge) == 5, "5 workers", 45)
        before_s = due_at - time.monotonic()
        bridge.settle(120)
        until(lambda: len(bridge.pods()) == 1, "1 worker", 120)
        after_s = time.monotonic() - due_at
    assert bridge.doubled() == 0
    assert before_s > 0
    say(
        f"scale: 1 to 5 workers in {up_s:.0f} s, {before_s:.0f} s before {BURST} were due; "
        f"1 again {after_s:.0f} s after that; 0 lost, 0 doubled"
    )
