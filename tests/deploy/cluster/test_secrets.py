"""A password is changed while messages flow."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import redis

from tests.deploy.cluster.bridge import Bridge

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


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
    bridge.kube.apply({**secret, "stringData": {"url": url}})


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
    bridge.settle()
    assert bridge.doubled() == 0
    admin.execute_command("ACL", "SETUSER", bridge.name, "<old")
    admin.execute_command("CLIENT", "KILL", "USER", bridge.name)
    bridge.schedule(100)
    bridge.settle()
