"""The store for a trial, in the release itself: it takes envelopes and outlives an upgrade."""

import os

import pytest

from tests.deploy.cluster.bridge import Bridge

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


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
    bridge.settle()
    assert bridge.doubled() == 0
