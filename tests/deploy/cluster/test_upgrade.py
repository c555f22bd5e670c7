"""An upgrade at noon: nothing lost, nothing twice; a bad one changes nothing."""

from collections.abc import Callable

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Refused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def uids(bridge: Bridge) -> set[str]:
    return {each["metadata"]["uid"] for each in bridge.pods()}


def test_upgrade_under_load_loses_and_doubles_nothing(
    bridge: Bridge, say: Callable[[str], None]
) -> None:
    bridge.install()
    before = uids(bridge)
    with bridge.under_load():
        bridge.install(podAnnotations={"duebridge/test": "another"})
    bridge.settle()
    assert not before & uids(bridge)
    assert bridge.doubled() == 0
    say(f"upgrade of 2 workers under load: {len(bridge.accepted)} messages, 0 lost, 0 doubled")


def test_bad_upgrade_is_stopped_and_leaves_the_workers_alone(bridge: Bridge) -> None:
    bridge.install()
    before = uids(bridge)
    config = bridge.values["config"]
    wrong = {**config["routes"], "new": {"target": {"broker": "kafka", "topic": "none-such"}}}
    with bridge.under_load(), pytest.raises(Refused, match="pre-upgrade") as refused:
        bridge.install("--rollback-on-failure", config={**config, "routes": wrong})
    assert "none-such" in str(refused.value)
    assert "none-such" in bridge.kube.kubectl("logs", f"job/{bridge.name}-check")
    assert uids(bridge) == before
    made = bridge.kube.get("configmap", bridge.name)["data"]["duebridge.yaml"]
    assert "none-such" not in made
    assert "deployed" in bridge.kube.helm("status", bridge.name)
    bridge.settle()
    assert bridge.doubled() == 0


def test_upgrade_whose_workers_never_become_ready_is_rolled_back(bridge: Bridge) -> None:
    bridge.install()
    before = uids(bridge)
    nowhere = {"RABBIT_URL": {"secret": f"{bridge.name}-none", "key": "url"}}
    with bridge.under_load(), pytest.raises(Refused):
        bridge.install(
            "--rollback-on-failure",
            "--timeout=20s",
            preflight={"enabled": False},
            secrets={"env": nowhere},
        )
    assert uids(bridge) == before
    bridge.settle()
    assert bridge.doubled() == 0


def test_new_configuration_replaces_the_pods(bridge: Bridge) -> None:
    bridge.install()
    before = uids(bridge)
    config = bridge.values["config"]
    bridge.install(config={**config, "worker": {"batch": 250}})
    assert not before & uids(bridge)
