"""The chart on a real cluster: what it delivers, what its pods may do, and the page's commands."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Refused, until
from tests.deploy.pages import PAGES, block, kafka_topics

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MESSAGES = 10_000
PENDING = 'duebridge_envelopes{route="rabbit",shard="0",state="pending"}'
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
SPARK_ENDS_WITHIN_S = 600.0


def test_pods_deliver_10000_to_kafka(installed: Bridge, say: Callable[[str], None]) -> None:
    installed.schedule(MESSAGES, delay="3s")
    took_s = installed.settle_once()
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


def test_sum_over_the_pods_metrics_is_what_the_store_holds(installed: Bridge) -> None:
    names = [each["metadata"]["name"] for each in installed.pods()]
    assert len(names) == 2
    installed.schedule(7, delay="1h", route="rabbit")

    def total() -> float:
        return sum(installed.metric(PENDING, name) for name in names)

    until(lambda: total() == 7, "one worker to export what waits", 30)
    assert [total() for _ in range(5)] == [7] * 5


def test_helm_test_asks_the_workers_through_their_service(installed: Bridge) -> None:
    shown = installed.kube.helm("test", installed.name, "--logs")
    assert f"http://{installed.name}:8080/readyz 200 ok" in shown


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


def test_trial_delivers_from_a_store_of_its_own(bridge: Bridge) -> None:
    valkey: dict[str, object] = {"enabled": True}
    if image := os.environ.get("DUEBRIDGE_K8S_STORE_IMAGE"):
        repository, _, tag = image.rpartition(":")
        valkey["image"] = {"repository": repository, "tag": tag}
    config = {**bridge.values["config"], "store": {"namespace": bridge.name}}
    bridge.install(config=config, valkey=valkey)
    bridge.send("before", delay="15s")
    bridge.install(podAnnotations={"duebridge/test": "another"})  # its check asks the store
    bridge.send("after", delay="1s")
    bridge.settle_once()


def has_ended(bridge: Bridge, job: str) -> bool:
    """Whether a job is complete; one that failed fails the test with its log."""
    status = bridge.kube.get("job", job)["status"]
    assert not status.get("failed"), bridge.kube.kubectl("logs", f"job/{job}")
    return bool(status.get("succeeded"))


@pytest.mark.timeout(900)
def test_journal_job_reads_what_was_delivered(bridge: Bridge) -> None:
    image = os.environ.get("DUEBRIDGE_K8S_SPARK_IMAGE")
    if not image:
        pytest.skip("set DUEBRIDGE_K8S_SPARK_IMAGE")
    repository, _, tag = image.rpartition(":")
    job = {"run": "journal", "args": ["/data/journal"], "schedule": "0 0 1 1 *"}
    spark = {
        "image": {"repository": repository, "tag": tag},
        "jobs": {"journal": job},
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    bridge.install(spark=spark)
    bridge.schedule(100)
    bridge.settle()
    run = f"{bridge.name}-now"
    bridge.kube.kubectl("create", "job", f"--from=cronjob/{bridge.name}-journal", run)
    until(lambda: has_ended(bridge, run), "Spark", SPARK_ENDS_WITHIN_S)
    assert "200 rows" in bridge.kube.kubectl("logs", f"job/{run}")


def typed(bridge: Bridge, line: str, values: Path) -> str:
    """Type a line in a namespace of the test; raises `Refused`."""
    program, *words = shlex.split(line)
    for place in [each for each, word in enumerate(words) if word == "-n"]:
        words[place + 1] = bridge.kube.namespace
    words = [str(values) if word == "values.yaml" else word for word in words]
    if program == "kafka-topics.sh":
        return kafka_topics(words)
    return bridge.kube.helm(*words) if program == "helm" else bridge.kube.kubectl(*words)


def test_commands_of_the_pages_do_what_they_say(bridge: Bridge) -> None:
    """Word by word, but for addresses, the topic's name and the namespace, which are a test's."""
    [commands] = {block(page, "kafka-topics.sh") for page in PAGES}
    [values] = {block(page, "image:") for page in PAGES}

    def here(text: str) -> str:
        text = text.replace("redis://redis.example:6379/0", bridge.stack.redis_url)
        text = text.replace("topic: reminders", f"topic: topic-{bridge.name}")
        text = text.replace("--topic reminders", f"--topic topic-{bridge.name}")
        return text.replace("kafka.example:9092", bridge.stack.kafka)

    given = yaml.safe_load(here(values))
    given["image"] = bridge.values["image"]
    lines = here(commands).splitlines()
    assert len(lines) == 5
    file = bridge.written(given)
    try:
        for line in lines[:4]:
            typed(bridge, line, file)
        until(lambda: "delivered" in typed(bridge, lines[4], file), "the message", 30)
        typed(bridge, lines[1], file)  # an upgrade, by the same words
    finally:
        bridge.kube.helm("uninstall", "duebridge", "--ignore-not-found", "--wait")
