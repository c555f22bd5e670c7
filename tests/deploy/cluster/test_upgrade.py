"""An upgrade at noon: nothing lost, nothing twice; a bad one changes nothing."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import yaml

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Refused, until
from tests.deploy.pages import PAGES, block

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_upgrade_under_load_loses_and_doubles_nothing(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    bridge.install()
    before = bridge.uids()
    with bridge.under_load():
        bridge.install(podAnnotations={"duebridge/test": "another"})
    bridge.settle_once()
    assert not before & bridge.uids()
    say(f"upgrade of 2 workers under load: {len(bridge.accepted)} messages, 0 lost, 0 doubled")


def test_bad_upgrade_is_stopped_and_leaves_the_workers_alone(bridge: Bridge) -> None:
    bridge.install()
    before = bridge.uids()
    config = bridge.values["config"]
    wrong = {**config["routes"], "new": {"target": {"broker": "kafka", "topic": "none-such"}}}
    with bridge.under_load(), pytest.raises(Refused, match="pre-upgrade") as refused:
        bridge.install("--rollback-on-failure", config={**config, "routes": wrong})
    assert "none-such" in str(refused.value)
    assert "none-such" in bridge.kube.kubectl("logs", f"job/{bridge.name}-check")
    assert bridge.uids() == before
    assert "new" not in bridge.configuration()["routes"]
    assert "deployed" in bridge.kube.helm("status", bridge.name)
    bridge.settle_once()


def test_upgrade_keeps_the_stores_namespace_and_refuses_another(bridge: Bridge) -> None:
    bridge.install()
    config = bridge.values["config"]
    with pytest.raises(Refused, match=f"namespace: expected {bridge.name}"):
        bridge.install(config={**config, "store": {**config["store"], "namespace": "other"}})
    given = {key: each for key, each in config["store"].items() if key != "namespace"}
    bridge.install(config={**config, "store": given})
    assert bridge.configuration()["store"]["namespace"] == bridge.name


def test_manifests_of_another_namespace_fail_the_check_that_is_applied_first(
    bridge: Bridge,
) -> None:
    """By the page's lines: `helm template` sees no cluster, `kubectl apply` knows no hook."""
    bridge.install()
    before = bridge.uids()
    store = {**bridge.values["config"]["store"], "namespace": "other"}
    lines = applying(bridge, config={**bridge.values["config"], "store": store})
    for line in lines[:2]:
        bridge.kube.shell(line)
    failed = f"job/{bridge.name}-check"
    bridge.kube.kubectl("wait", failed, "--for=condition=Failed", "--timeout=110s")
    shown = bridge.kube.kubectl("logs", failed)
    assert f"store.namespace: expected {bridge.name}, where the running workers'" in shown
    assert bridge.uids() == before
    assert bridge.configuration()["store"]["namespace"] == bridge.name


def test_manifests_that_the_check_takes_are_applied_under_load(bridge: Bridge) -> None:
    bridge.install()
    before = bridge.uids()
    with bridge.under_load():
        for line in applying(bridge, podAnnotations={"duebridge/test": "another"}):
            bridge.kube.shell(line)
        bridge.kube.kubectl("rollout", "status", f"deployment/{bridge.name}", "--timeout=90s")
    bridge.settle_once()
    assert not before & bridge.uids()


def applying(bridge: Bridge, **changes: Any) -> list[str]:
    """Return the page's lines about `helm template`, of this release with these values changed."""
    text = block(PAGES[0], "kubectl -n duebridge delete job", "## Many releases")
    text = text.replace(" \\\n ", "").replace("-n duebridge", f"-n {bridge.kube.namespace}")
    text = text.replace("template duebridge", f"template {bridge.name}")
    text = text.replace("job/duebridge-check", f"job/{bridge.name}-check")
    return text.replace(
        "values.yaml", str(bridge.written({**bridge.values, **changes}))
    ).splitlines()


def test_upgrade_whose_workers_never_become_ready_is_rolled_back(bridge: Bridge) -> None:
    bridge.install()
    before = bridge.uids()
    nowhere = {"RABBIT_URL": {"secret": f"{bridge.name}-none", "key": "url"}}
    changes = {"preflight": {"enabled": False}, "secrets": {"env": nowhere}}
    with bridge.under_load(), pytest.raises(Refused):
        bridge.install("--rollback-on-failure", "--timeout=20s", **changes)
    assert bridge.uids() == before
    bridge.settle_once()


def test_upgrade_without_a_route_that_holds_envelopes_is_stopped(bridge: Bridge) -> None:
    bridge.install()
    bridge.schedule(10, delay="1h", route="rabbit")
    config = bridge.values["config"]
    with pytest.raises(Refused, match=r"not in the configuration \(envelopes: 10\)"):
        bridge.install(config={**config, "routes": {"kafka": config["routes"]["kafka"]}})


def test_existing_configuration_is_read_and_followed(bridge: Bridge) -> None:
    given = bridge.values["config"]

    def write(drain: str) -> None:
        text = yaml.safe_dump({**given, "worker": {"drain": drain}})
        metadata = {"name": f"{bridge.name}-own"}
        about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        bridge.kube.apply({**about, "data": {"duebridge.yaml": text}})

    write("1m")
    bridge.install(existingConfigMap=f"{bridge.name}-own", config={"version": 1})
    before = bridge.uids()
    assert {each["spec"]["terminationGracePeriodSeconds"] for each in bridge.pods()} == {60 + 25}
    write("30s")
    bridge.install()
    assert not before & bridge.uids()


@pytest.fixture
def admin(bridge: Bridge) -> Iterator[redis.Redis]:
    """Give the store's own administrator; the test's user is gone afterwards."""
    client = redis.Redis.from_url(bridge.stack.redis_url)
    yield client
    client.acl_deluser(bridge.name)
    client.close()


def write_secret(bridge: Bridge, password: str) -> None:
    place = urlsplit(bridge.stack.redis_url)
    url = f"redis://{bridge.name}:{password}@{place.hostname}:{place.port}{place.path}"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": bridge.name}}
    bridge.kube.apply({**secret, "stringData": {"url": url, "password": password}})


def test_secret_that_is_rotated_in_its_file_restarts_nobody_and_loses_nothing(
    bridge: Bridge, admin: redis.Redis
) -> None:
    """As docs/kubernetes.md says: the server accepts both, the files change, the old one goes."""
    admin.execute_command("ACL", "SETUSER", bridge.name, "on", ">old", "~*", "&*", "+@all")
    write_secret(bridge, "old")
    place = urlsplit(bridge.stack.redis_url)
    password = f"{bridge.name}:${{file:/secrets/store/password}}"
    url = f"redis://{password}@{place.hostname}:{place.port}{place.path}"
    config = {**bridge.values["config"], "store": {"url": url, "namespace": bridge.name}}
    files = {"store": {"secret": bridge.name}}
    bridge.install(config=config, secrets={**bridge.values["secrets"], "files": files})
    before = bridge.uids()
    with bridge.under_load():
        admin.execute_command("ACL", "SETUSER", bridge.name, ">new")
        write_secret(bridge, "new")
        until(lambda: passwords(bridge) == {"new"}, "the file in every pod")
        admin.execute_command("ACL", "SETUSER", bridge.name, "<old")
        admin.execute_command("CLIENT", "KILL", "USER", bridge.name)
        bridge.schedule(100)
    bridge.settle()
    assert bridge.uids() == before
    assert [bridge.restarts(each["metadata"]["name"]) for each in bridge.pods()] == [0, 0]


def passwords(bridge: Bridge) -> set[str]:
    """What the pods' files have; a changed pod makes the kubelet look at its Secrets at once."""
    names = [each["metadata"]["name"] for each in bridge.pods()]
    looked = f"duebridge/test={time.monotonic()}"
    bridge.kube.kubectl("annotate", "pods", *names, "--overwrite", looked)
    read = "print(open('/secrets/store/password').read())"
    return {bridge.python(name, read).strip() for name in names}


def test_secret_that_is_rotated_loses_and_doubles_nothing(
    bridge: Bridge, admin: redis.Redis
) -> None:
    admin.execute_command("ACL", "SETUSER", bridge.name, "on", ">old", "~*", "&*", "+@all")
    write_secret(bridge, "old")
    values = bridge.values
    env = {**values["secrets"]["env"], "STORE_URL": {"secret": bridge.name, "key": "url"}}
    config = {**values["config"], "store": {"url": "${STORE_URL}", "namespace": bridge.name}}
    bridge.install(config=config, secrets={"env": env})
    with bridge.under_load():
        admin.execute_command("ACL", "SETUSER", bridge.name, ">new")
        write_secret(bridge, "new")
        bridge.kube.kubectl("rollout", "restart", f"deployment/{bridge.name}")
        bridge.kube.kubectl("rollout", "status", f"deployment/{bridge.name}", "--timeout=90s")
    bridge.settle_once()
    admin.execute_command("ACL", "SETUSER", bridge.name, "<old")
    admin.execute_command("CLIENT", "KILL", "USER", bridge.name)
    bridge.schedule(100)
    bridge.settle()
