"""How pods go: within their grace period by themselves."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Kube, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

IN_FLIGHT = 'duebridge_in_flight{broker="kafka"}'
WORKER = {"drain": "4s", "publish_deadline": "5s"}
GRACE_S = 4 + 5 + 10


def last_state(kube: Kube, pod: str, within_s: float) -> tuple[dict[str, Any], float]:
    """Return how a container ended after its pod was deleted, and how long it took."""
    watching = kube.watch("get", "pod", pod, "-w", "-o", "json", "--output-watch-events")
    stop = threading.Timer(within_s, watching.kill)
    stop.start()
    began = time.monotonic()
    kube.kubectl("delete", "pod", pod, "--wait=false")
    try:
        for event in _documents(watching):
            [status] = event["object"]["status"].get("containerStatuses", [{}])
            if "terminated" in status.get("state", {}):
                return status["state"]["terminated"], time.monotonic() - began
    finally:
        stop.cancel()
        watching.kill()
        watching.communicate()
    raise AssertionError(f"{pod} did not end within {within_s} s")


def _documents(watching: Any) -> Iterator[Any]:
    text, decoder = "", json.JSONDecoder()
    for line in watching.stdout:
        text += line
        try:
            document, end = decoder.raw_decode(text.lstrip())
        except ValueError:
            continue
        text = text.lstrip()[end:]
        yield document


def test_stop_under_load_ends_by_itself_and_doubles_nothing(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    bridge.install()
    init = bridge.python(bridge.pod(), "print(open('/proc/1/comm').read())")
    assert init.strip() == "tini", "it hears no SIGTERM while it starts"
    with bridge.under_load():
        ended, took_s = last_state(bridge.kube, bridge.pod(), 60)
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    bridge.settle_once()
    say(f"pod deleted under load: ended by itself after {took_s:.1f} s")


def test_stop_while_the_broker_is_frozen_ends_within_the_grace_period(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    if not bridge.stack.pids:
        pytest.skip("the broker is not ours to freeze")
    config = {**bridge.values["config"], "worker": WORKER}
    bridge.install(config=config, replicas=1)
    pod = bridge.pods()[0]
    assert pod["spec"]["terminationGracePeriodSeconds"] == GRACE_S
    with bridge.stack.frozen("kafka"):
        bridge.schedule(2000, delay="100ms")
        until(lambda: bridge.metric(IN_FLIGHT) > 0, "messages in flight")
        ended, took_s = last_state(bridge.kube, pod["metadata"]["name"], GRACE_S + 20)
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed"), "it was killed, at its grace"
    bridge.settle(90)
    say(f"pod deleted while Kafka was frozen: ended after {took_s:.1f} of {GRACE_S} s, 0 lost")
