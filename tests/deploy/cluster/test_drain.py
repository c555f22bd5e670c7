"""A node is drained with the budget in force: it ends, and never takes all workers at once."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import LOOK_EVERY_S, Refused, meanwhile, until
from tests.deploy.cluster.second_node import second_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REPLICAS = 3


def nodes_of(bridge: Bridge) -> set[str]:
    return {str(each["spec"].get("nodeName")) for each in bridge.pods()}


def ready(bridge: Bridge) -> int:
    conditions = [each["status"].get("conditions", ()) for each in bridge.pods()]
    return sum(
        any(each["type"] == "Ready" and each["status"] == "True" for each in found)
        for found in conditions
    )


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
    bridge.settle(90)
    assert bridge.doubled() == 0
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
