"""The chart on a real cluster: what it delivers, and what its pods may do."""

import json
from collections.abc import Callable

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Refused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MESSAGES = 10_000
LOOK_AROUND = """
import json, os
def refused(path):
    try:
        open(path, "w").close()
    except OSError as error:
        return error.errno
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "root": {path: refused(path) for path in ("/a", "/etc/a", "/opt/a", "/etc/duebridge/a")},
    "tmp": refused("/tmp/a"),
    "capabilities": [int(status[key], 16) for key in ("CapEff", "CapPrm", "CapBnd", "CapAmb")],
    "user": [os.getuid(), os.getgid()],
    "no_new_privileges": int(status["NoNewPrivs"]),
    "seccomp": int(status["Seccomp"]),
    "token": os.path.exists("/var/run/secrets/kubernetes.io"),
}))
"""
READ_ONLY = 30


def test_pods_deliver_10000_to_kafka(installed: Bridge, say: Callable[[str], None]) -> None:
    installed.schedule(MESSAGES, delay="3s")
    took_s = installed.settle()
    assert installed.doubled() == 0
    say(f"{MESSAGES} due 3 s later at one instant: the last one arrived after {took_s:.1f} s")


def test_pods_deliver_10000_to_rabbitmq(installed: Bridge) -> None:
    accepted = installed.schedule(MESSAGES, delay="1s", route="rabbit")
    ids: list[str] = []
    with installed.rabbitmq() as channel:
        for _, properties, _ in channel.consume(installed.name, auto_ack=True):
            ids.append(properties.message_id)
            if len(ids) == MESSAGES:
                break
        channel.cancel()
    assert set(ids) == accepted


def test_command_line_in_a_pod_finds_its_configuration(installed: Bridge) -> None:
    words = ("exec", f"deploy/{installed.name}", "--", "duebridge")
    installed.kube.kubectl(*words, "send", "kafka", "hello", "--delay", "1h", "--id", "a")
    found = json.loads(installed.kube.kubectl(*words, "get", "kafka", "a", "--output", "json"))
    assert found["state"] == "pending"
    assert installed.kube.kubectl(*words, "doctor")


def test_pod_has_a_read_only_root_and_no_capability(installed: Bridge) -> None:
    found = json.loads(installed.python(installed.pod(), LOOK_AROUND))
    assert set(found["root"].values()) == {READ_ONLY}, found
    assert found["tmp"] is None
    assert found["capabilities"] == [0, 0, 0, 0]
    assert found["user"] == [10001, 10001]
    assert found["no_new_privileges"] == 1
    assert found["seccomp"] == 2
    assert found["token"] is False


def test_install_with_a_missing_target_makes_nothing(bridge: Bridge) -> None:
    config = bridge.values["config"]
    missing = {"kafka": {"target": {"broker": "kafka", "topic": f"{bridge.name}-none"}}}
    with pytest.raises(Refused, match="pre-install"):
        bridge.install(config={**config, "routes": missing})
    log = bridge.kube.kubectl("logs", f"job/{bridge.name}-check")
    assert f"{bridge.name}-none" in log
    assert bridge.pods() == []
    bridge.kube.kubectl("delete", f"job/{bridge.name}-check")
