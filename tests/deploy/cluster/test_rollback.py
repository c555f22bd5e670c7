"""Back to an earlier revision: checked as an upgrade is, and by force where that is wanted."""

import pytest

from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Refused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_rollback_under_load_replaces_the_pods_and_loses_and_doubles_nothing(
    bridge: Bridge,
) -> None:
    bridge.install()
    bridge.install(config={**bridge.values["config"], "worker": {"batch": 250}})
    before = bridge.uids()
    with bridge.under_load():
        bridge.kube.helm("rollback", bridge.name, "--wait")
    bridge.settle_once()
    assert not before & bridge.uids()
    assert "worker" not in bridge.configuration()


def test_rollback_to_a_revision_that_the_check_rejects_is_stopped(bridge: Bridge) -> None:
    config = bridge.values["config"]
    bridge.install(config={**config, "routes": {"kafka": config["routes"]["kafka"]}})
    bridge.install(config=config)
    bridge.schedule(10, delay="1h", route="rabbit")
    before = bridge.uids()
    with pytest.raises(Refused, match=r"not in the configuration \(envelopes: 10\)"):
        bridge.kube.helm("rollback", bridge.name, "1", "--wait")
    assert "envelopes: 10" in bridge.kube.kubectl("logs", f"job/{bridge.name}-check-rollback")
    assert bridge.uids() == before
    assert bridge.configuration()["routes"].keys() == {"kafka", "rabbit"}


def test_rollback_to_another_namespace_is_stopped_unless_forced(bridge: Bridge) -> None:
    bridge.install()
    config = bridge.values["config"]
    other = {**config["store"], "namespace": f"{bridge.name}-other"}
    bridge.install(config={**config, "store": other}, preflight={"enabled": False})
    before = bridge.uids()
    with pytest.raises(Refused, match=f"expected {bridge.name}-other, where the running workers'"):
        bridge.kube.helm("rollback", bridge.name, "1", "--wait")
    assert bridge.uids() == before
    assert bridge.configuration()["store"]["namespace"] == f"{bridge.name}-other"
    bridge.kube.helm("rollback", bridge.name, "1", "--wait", "--no-hooks")
    assert bridge.configuration()["store"]["namespace"] == bridge.name
    bridge.schedule(10)
    bridge.settle_once()


def test_rollback_to_a_revision_without_a_check_of_rollbacks_is_forced(bridge: Bridge) -> None:
    """Both revisions have a route whose queue is gone by then; the check of one is left out."""
    config, gone = bridge.values["config"], f"{bridge.name}-gone"
    target = {"broker": "rabbit", "exchange": "", "routing_key": gone}
    with bridge.rabbitmq() as channel:
        channel.queue_declare(gone, durable=True)
    wide = {**config, "routes": {**config["routes"], "gone": {"target": target}}}
    bridge.install(config=wide)
    bridge.install(preflight={"rollback": False})
    bridge.install(config=config)
    with bridge.rabbitmq() as channel:
        channel.queue_delete(gone)
    with pytest.raises(Refused, match=f"queue '{gone}' does not exist"):
        bridge.kube.helm("rollback", bridge.name, "1", "--wait")
    assert "gone" not in bridge.configuration()["routes"]
    bridge.kube.helm("rollback", bridge.name, "2", "--wait")
    assert "gone" in bridge.configuration()["routes"]
    bridge.schedule(10)
    bridge.settle_once()


def test_rollback_to_another_account_is_refused_unless_forced(bridge: Bridge) -> None:
    """Its account is gone: the check's pod is never made, and no pod of the workers is touched."""
    former, later = ({"name": f"{bridge.name}-{word}"} for word in ("former", "later"))
    check = f"{bridge.name}-check-rollback"
    bridge.install("--no-hooks", serviceAccount=former, preflight={"timeoutSeconds": 5})
    bridge.install(serviceAccount=later, preflight={})
    before = bridge.uids()
    with pytest.raises(Refused, match=check):
        bridge.kube.helm("rollback", bridge.name, "1", "--wait")
    assert bridge.kube.get("pods", "-l", f"job-name={check}")["items"] == []
    assert bridge.uids() == before
    bridge.kube.helm("rollback", bridge.name, "1", "--wait", "--no-hooks")
    assert {each["spec"]["serviceAccountName"] for each in bridge.pods()} == {former["name"]}
    bridge.schedule(10)
    bridge.settle_once()
