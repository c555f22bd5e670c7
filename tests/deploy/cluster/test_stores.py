"""A release on a Sentinel set and on a Cluster: a master dies, and nothing is lost or doubled."""

import re
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tests.deploy.chart import Object, values_of
from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import Kube
from tests.deploy.cluster.stack import Stack
from tests.support.redis.redis_node import HOST
from tests.support.redis.redis_sets import SETS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PASSWORD = "trial"  # noqa: S105 - of servers that live as long as a test
SAFE = ("--appendonly", "yes")


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
