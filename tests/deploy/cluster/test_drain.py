"""A drain of a node always ends. It cordons the node, so nothing runs beside these tests."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import LOOK_EVERY_S, Kube, Refused, meanwhile, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REPLICAS = 3
NODE_LOOKS_EVERY_S = 0.5
ROOM = {"cpu": "8", "memory": "16Gi", "pods": "50"}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": now(), "lastHeartbeatTime": now()}


@contextmanager
def second_node(kube: Kube, name: str) -> Iterator[None]:
    """Give the cluster another node, in a zone of its own, until the block is done."""
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name}
    metadata = {"name": name, "labels": labels}
    kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    try:
        with meanwhile(lambda: _play(kube, name), NODE_LOOKS_EVERY_S):
            yield
    finally:
        kube.kubectl("delete", "node", name)
        kube.kubectl("delete", "pods", "--field-selector", f"spec.nodeName={name}", "--force")


def _play(kube: Kube, name: str) -> None:
    """Be the node's kubelet, as far as the control plane can tell."""
    status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [condition("Ready")]}
    _patch(kube, "node", name, **status)
    for pod in kube.get("pods", "--field-selector", f"spec.nodeName={name}")["items"]:
        with suppress(Refused):  # it went while it was looked at
            _run(kube, pod)


def _run(kube: Kube, pod: dict[str, Any]) -> None:
    name = pod["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        kube.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    elif pod["status"].get("phase") != "Running":
        kinds = ("Initialized", "ContainersReady", "PodScheduled", "Ready")
        _patch(kube, "pod", name, phase="Running", conditions=[condition(kind) for kind in kinds])


def _patch(kube: Kube, kind: str, name: str, **status: Any) -> None:
    given = json.dumps({"status": status})
    kube.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", given)


def nodes_of(bridge: Bridge) -> set[str]:
    return {str(each["spec"].get("nodeName")) for each in bridge.pods()}


def ready(bridge: Bridge) -> int:
    statuses = [each["status"].get("conditions", ()) for each in bridge.pods()]
    conditions = [{each["type"]: each["status"] for each in found} for found in statuses]
    return sum(found.get("Ready") == "True" for found in conditions)


@contextmanager
def drained(bridge: Bridge, node: str) -> Iterator[float]:
    """Drain a node of this release's pods; gives how long that took."""
    pods = f"--pod-selector=app.kubernetes.io/instance={bridge.name}"
    began = time.monotonic()
    try:
        bridge.kube.kubectl(
            "drain", node, pods, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s"
        )
        yield time.monotonic() - began
    finally:
        bridge.kube.kubectl("uncordon", node)


def test_drain_with_the_budget_in_force_ends(bridge: Bridge, say: Callable[[str], None]) -> None:
    bridge.install(replicas=REPLICAS)
    node = min(nodes_of(bridge))
    has_others = len(bridge.kube.get("nodes")["items"]) > 1
    other = second_node(bridge.kube, f"{bridge.name}-node")
    counts: list[int] = []
    with (
        nullcontext() if has_others else other,
        bridge.under_load(),
        meanwhile(lambda: counts.append(ready(bridge)), LOOK_EVERY_S),
        drained(bridge, node) as took_s,
    ):
        until(lambda: ready(bridge) == REPLICAS, "the pods elsewhere")
        assert node not in nodes_of(bridge)
    assert min(counts) >= REPLICAS - 1
    until(lambda: ready(bridge) == REPLICAS, "the pods")
    bridge.settle_once(90)
    say(f"drain of {REPLICAS} workers: {took_s:.1f} s, never fewer than {min(counts)} ready")


def test_drain_of_the_only_node_waits_for_the_budget(bridge: Bridge) -> None:
    """Where no replacement can be scheduled, the budget keeps the others, as it should."""
    if len(bridge.kube.get("nodes")["items"]) > 1:
        pytest.skip("needs a cluster of one node")
    bridge.install(replicas=2)
    [node] = nodes_of(bridge)
    words = ("drain", node, f"--pod-selector=app.kubernetes.io/instance={bridge.name}")
    try:
        with pytest.raises(Refused, match="disruption budget"):
            bridge.kube.kubectl(*words, "--delete-emptydir-data", "--timeout=10s")
        bridge.schedule(100)
        bridge.settle()
    finally:
        bridge.kube.kubectl("uncordon", node)
