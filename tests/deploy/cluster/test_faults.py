"""Pods that are killed, workers that freeze, a store's master that dies: nothing is lost."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from tests.deploy.chart import Object, values_of
from tests.deploy.cluster.bridge import PYTHON, Bridge
from tests.deploy.cluster.kube import Kube, until
from tests.deploy.cluster.stack import Stack
from tests.support.redis.redis_node import HOST
from tests.support.redis.redis_sets import SETS
from tests.support.servers import IS_BESIDE_OTHERS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

IN_FLIGHT = 'duebridge_in_flight{broker="kafka"}'
# The child of the container's init, found among the node's processes: others there are of `exec`.
SIGNAL = """
import os, re
def status(pid):
    try:
        groups, text = open(f"/proc/{pid}/cgroup").read(), open(f"/proc/{pid}/status").read()
    except OSError:
        return ""
    return text if "%s" in groups else ""
found = {pid: status(pid) for pid in os.listdir("/proc") if pid.isdigit()}
def those_with(line):
    return [pid for pid, text in found.items() if re.search(line, text, re.M)]
[init] = those_with(r"^NSpid:.*\\t1$")
[worker] = those_with(rf"^PPid:\\t{init}$")
os.kill(int(worker), %d)
"""
SIGKILL, SIGSTOP = 9, 19
KILLED = 128 + SIGKILL
# As the chart's README says; beside other releases on the same cores a start takes its time.
BACK_WITHIN_S = 60 if IS_BESIDE_OTHERS else 30
PASSWORD = "trial"  # noqa: S105 - of servers that live as long as a test
SAFE = ("--appendonly", "yes")


class Node:
    """Sends signals to the worker of a container, from outside of it."""

    def __init__(self, kube: Kube) -> None:
        self._kube, self._namespace = kube, f"{kube.namespace}-node"
        self._kubectl("create", "namespace", self._namespace)

    def _kubectl(self, *words: str, given: str = "") -> str:
        return self._kube.kubectl("-n", self._namespace, *words, given=given)

    def send(self, number: int, bridge: Bridge, pod: str) -> None:
        """Send a signal to the worker in a pod; it has got it when this returns."""
        found = bridge.kube.get("pod", pod)
        [status], [container] = found["status"]["containerStatuses"], found["spec"]["containers"]
        wanted = status["containerID"].rpartition("/")[2]
        name = f"signal-{number}-{pod}"[:63]
        spec: dict[str, Any] = {
            "hostPID": True,
            "restartPolicy": "Never",
            "nodeName": found["spec"]["nodeName"],
            "tolerations": [{"operator": "Exists"}],
        }
        program = {
            "command": [PYTHON, "-c", SIGNAL % (wanted, number)],
            "image": container["image"],
        }
        program |= {"name": "signal", "securityContext": {"runAsUser": 0}}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        self._kubectl(
            "apply",
            "-f",
            "-",
            given=json.dumps({**made, "spec": {**spec, "containers": [program]}}),
        )
        self._kubectl(
            "wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"
        )

    def close(self) -> None:
        self._kubectl("delete", "namespace", self._namespace, "--wait=false")


@pytest.fixture(scope="module")
def node(kube: Kube) -> Iterator[Node]:
    node = Node(kube)
    yield node
    node.close()


def seconds_until_restarted(bridge: Bridge, pod: str, before: int) -> float:
    took_s = until(lambda: bridge.restarts(pod) > before, "a restart", 60)
    return took_s + until(lambda: is_ready(bridge, pod), "the pod", 60)


def exit_code(bridge: Bridge, pod: str) -> int | None:
    """How the container ended that ran in the pod before; None where Kubernetes forgot it.

    A kubelet keeps the last state as long as it likes (kubernetes/kubernetes#101044, #6652).
    """
    [status] = bridge.kube.get("pod", pod)["status"]["containerStatuses"]
    ended = status["lastState"].get("terminated")
    return ended and int(ended["exitCode"])


def is_ready(bridge: Bridge, pod: str) -> bool:
    statuses = bridge.kube.get("pod", pod)["status"].get("containerStatuses", [{}])
    return bool(statuses[0].get("ready")) and "running" in statuses[0]["state"]


@pytest.mark.parametrize("number", [SIGSTOP, SIGKILL])
def test_signalled_worker_is_back_in_time_and_loses_nothing(
    bridge: Bridge, node: Node, say: Callable[[str], None], number: int
) -> None:
    bridge.install(replicas=2)
    pod = bridge.pod()
    with bridge.under_load():
        node.send(number, bridge, pod)
        took_s = seconds_until_restarted(bridge, pod, before=0)
    assert exit_code(bridge, pod) in (KILLED, None)
    bridge.settle()
    # what a killed one held may come twice, with the same ids
    say(f"signal {number}: restarted and ready {took_s:.1f} s later; {bridge.doubled()} doubled")
    assert took_s < BACK_WITHIN_S


def test_worker_killed_while_envelopes_are_under_its_lease_loses_none(
    bridge: Bridge, node: Node, say: Callable[[str], None]
) -> None:
    bridge.install(replicas=1)
    pod = bridge.pod()
    with bridge.under_load():
        with bridge.stack.frozen("kafka") if bridge.stack.pids else nullcontext():
            until(lambda: bridge.metric(IN_FLIGHT, pod) > 0, "envelopes in flight")
            leased = bridge.metric(IN_FLIGHT, pod)
            node.send(SIGKILL, bridge, pod)
            until(lambda: bridge.restarts(pod) == 1, "a restart", 60)
        until(lambda: is_ready(bridge, pod), "the pod", 60)
    assert exit_code(bridge, pod) in (KILLED, None)
    bridge.settle(90)  # with the leases of the killed one, which run out first
    say(f"kill -9 with {leased:.0f} envelopes leased: 0 lost, {bridge.doubled()} doubled")


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


def store_at(kind: str, url: str) -> Object:
    """Return the store of the chart's values file, at these servers."""
    store: Object = yaml.safe_load(values_of(kind).read_text())["config"]["store"]
    return {**store, "url": re.sub("://.*@", "://${REDIS_LOGIN}@", url)}


@pytest.mark.parametrize("kind", SETS)
def test_release_on_servers_whose_master_dies_delivers_each_once(
    kube: Kube, stack: Stack, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if HOST == "127.0.0.1":
        pytest.skip("set DUEBRIDGE_K8S_HOST: the sets have to be reached from pods")
    name, login = f"bridge-{uuid4().hex[:6]}", f":{PASSWORD}"
    monkeypatch.setenv("REDIS_LOGIN", login)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-redis"}}
    kube.apply({**secret, "stringData": {"login": login}})
    with SETS[kind](tmp_path, *SAFE, password=PASSWORD) as servers:
        bridge = Bridge(kube, stack, name, image, tmp_path, store_at(kind, servers.url))
        with closing(bridge):
            reference = {"secret": f"{name}-redis", "key": "login"}
            bridge.values["secrets"]["env"]["REDIS_LOGIN"] = reference
            bridge.install(replicas=1)
            bridge.schedule(200, delay="6s")
            old = servers.kill_master()
            old.start()  # each accepted envelope is on every replica: they must be there
            bridge.settle_once()
            bridge.schedule(100)
            bridge.settle_once()
            assert bridge.restarts(bridge.pod()) == 0
