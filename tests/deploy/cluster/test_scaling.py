"""1 → 5 → 1 on what will be due: workers are there before the burst, and go after it."""

import os
import time
from collections.abc import Callable

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import until
from tests.deploy.cluster.metrics_api import external_metric, is_taken

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

DELIVERED = 'duebridge_delivered_total{route="kafka"}'
METRIC = "duebridge_due_within_60s"
BURST = 50_000
SHARED_WITHIN_S = 2.0
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
    bridge.settle()
    assert bridge.doubled() == 0
    say(f"worker added under load: it delivers {took_s:.1f} s after it was seen ready")


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
