"""A node that is none: pods that come to it are said to run. Enough to see where a drain ends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from tests.deploy.cluster.kube import Kube, Refused, meanwhile

LOOK_EVERY_S = 0.5
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
        with meanwhile(lambda: _play(kube, name), LOOK_EVERY_S):
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
