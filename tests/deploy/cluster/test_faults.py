"""Pods that are killed and workers that freeze: back within 30 s, and nothing is lost."""

import time
from collections.abc import Callable

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# The first process of a container takes no signal from inside; in a shared namespace it is another.
SHARED = '{"spec":{"template":{"spec":{"shareProcessNamespace":true}}}}'
SIGNAL = """
import os
def words(pid):
    return open(f"/proc/{pid}/cmdline", "rb").read()
others = {int(each) for each in os.listdir("/proc") if each.isdigit()} - {os.getpid()}
[worker] = [each for each in others if b"--health-port" in words(each)]
os.kill(worker, %d)
"""
SIGKILL, SIGSTOP = 9, 19


def share_processes(bridge: Bridge) -> None:
    bridge.kube.kubectl("patch", f"deployment/{bridge.name}", "-p", SHARED)
    bridge.kube.kubectl("rollout", "status", f"deployment/{bridge.name}")
    until(lambda: len(bridge.pods()) == bridge.values["replicas"], "the pods")


def seconds_until_restarted(bridge: Bridge, pod: str, number: int) -> float:
    began, before = time.monotonic(), bridge.restarts(pod)
    bridge.python(pod, SIGNAL % number)
    until(lambda: bridge.restarts(pod) > before, "a restart", 60)
    until(lambda: is_ready(bridge, pod), "the pod", 60)
    return time.monotonic() - began


def is_ready(bridge: Bridge, pod: str) -> bool:
    statuses = bridge.kube.get("pod", pod)["status"].get("containerStatuses", [{}])
    return bool(statuses[0].get("ready")) and "running" in statuses[0]["state"]


@pytest.mark.parametrize("number", [SIGSTOP, SIGKILL])
def test_signalled_worker_is_back_within_30_seconds_and_loses_nothing(
    bridge: Bridge, say: Callable[[str], None], number: int
) -> None:
    bridge.install(replicas=2)
    share_processes(bridge)
    with bridge.under_load():
        took_s = seconds_until_restarted(bridge, bridge.pod(), number)
    bridge.settle()
    # what a killed one held may come twice, with the same ids
    say(f"signal {number}: restarted and ready {took_s:.1f} s later; {bridge.doubled()} doubled")
    assert took_s < 30


def test_pod_that_is_taken_away_at_once_loses_nothing(bridge: Bridge) -> None:
    bridge.install(replicas=2)
    with bridge.under_load():
        gone = bridge.pod()
        bridge.kube.kubectl("delete", "pod", gone, "--grace-period=0", "--force")
        until(lambda: len(bridge.pods()) == 2, "another pod")
    bridge.settle()


def test_outage_of_the_store_restarts_nobody(bridge: Bridge) -> None:
    if not bridge.stack.pids:
        pytest.skip("the store is not ours to stop")
    bridge.install(replicas=2)
    with bridge.stack.frozen("redis"):
        # probed by now often enough for a restart, were it asked for
        until(lambda: not any(is_ready(bridge, pod) for pod in names(bridge)), "unready pods")
        deadline = time.monotonic() + 20
        until(lambda: time.monotonic() > deadline, "20 s")
    until(lambda: all(is_ready(bridge, pod) for pod in names(bridge)), "ready pods")
    assert [bridge.restarts(pod) for pod in names(bridge)] == [0, 0]
    bridge.schedule(100)
    bridge.settle()


def names(bridge: Bridge) -> list[str]:
    return [each["metadata"]["name"] for each in bridge.pods()]
