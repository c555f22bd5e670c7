"""A Sentinel set over TLS, with a user of the servers and one of the Sentinels, fails over."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import Shard
from duebridge.store.life import RouteLife
from duebridge.store.registry import Registry
from duebridge.store.server.connection import Connection
from duebridge.store.server.rights import rights_of, sentinel_rights
from tests.support.certificates import Certificates, tls_options
from tests.support.desk import YEAR_MS, envelope
from tests.support.redis.redis_node import PATIENCE_S, RedisNode
from tests.support.redis.redis_sets import NAME, SentinelSet, sentinel_set
from tests.support.servers import AT_ONCE, free_port, wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("no_secret_is_logged")]

SECRET, SENTINELS_SECRET = "canary-servers", "canary-sentinels"  # of those who do everything
NAMESPACE = "secure"


class TlsNode(RedisNode):
    """A server or a Sentinel that speaks TLS alone, to its own kind too."""

    def __init__(
        self,
        home: Path,
        port: int,
        words: Sequence[str],
        password: str = "",
        *,
        files: Certificates,
    ) -> None:
        super().__init__(home, 0, [*words, *tls_options(files, port)], password)
        self.port, self._ca = port, files.ca

    def client(self) -> Any:
        return redis.Redis(
            port=self.port,
            password=self.password or None,
            socket_timeout=PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
            ssl=True,
            ssl_ca_certs=self._ca,
            ssl_check_hostname=False,
        )


@contextmanager
def secure_set(home: Path, files: Certificates) -> Iterator[SentinelSet]:
    """Run a set in which everybody needs a password, and clients users of their own."""

    def make(at: Path, *words: str, password: str) -> RedisNode:
        login = ("--requirepass", password, "--masterauth", password)
        return TlsNode(at, free_port(), [*AT_ONCE, *login, *words], password, files=files)

    lines = (f"requirepass {SENTINELS_SECRET}", f"sentinel sentinel-pass {SENTINELS_SECRET}")
    options: dict[str, Any] = {"sentinel_options": lines, "password": SECRET, "make": make}
    with sentinel_set(home, **options, watch=partial(TlsNode, files=files)) as running:
        for each in running.servers:
            words = rights_of("operator", NAMESPACE)
            each.ask("ACL", "SETUSER", "shop", "on", ">canary-shop", *words)
        for each in running.sentinels:
            each.ask("ACL", "SETUSER", "asks", "on", ">canary-asks", *sentinel_rights())
        yield running


def url_of(running: SentinelSet, files: Certificates) -> str:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in running.sentinels)
    own = "sentinel_username=asks&sentinel_password=canary-asks"
    secure = f"ssl_ca_certs={files.ca}&ssl_check_hostname=no"
    return f"rediss+sentinel://shop:canary-shop@{hosts}/{NAME}/0?{own}&{secure}"


def test_set_over_tls_with_users_of_their_own_fails_over_and_keeps_what_it_has(
    certificates: Certificates, tmp_path: Path, open_at: Callable[..., Connection]
) -> None:
    with secure_set(tmp_path, certificates) as running:
        connection = open_at(url_of(running, certificates))
        shard = Shard(NAMESPACE, "route", 0)
        life = RouteLife(Registry(connection, NAMESPACE), "route", 1, registers=True)
        store = DelayStore(connection, shard, life=life, repeat_for_s=40)
        store.schedule([envelope("a", "1h")], max_delay_ms=YEAR_MS)
        copies = partial(map, lambda each: each.ask("HLEN", shard.key("envelopes")))
        wait_until(lambda: list(copies(running.replicas())) == [1, 1], "the copies")
        old = running.kill_master()
        assert store.cancel("a") == "cancelled"
        alive = [each for each in (*running.servers, *running.sentinels) if each is not old]
        assert [each.ask("ACL", "LOG") for each in alive] == [[]] * 5
