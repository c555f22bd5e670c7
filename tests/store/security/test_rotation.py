"""A password or a certificate that changes while a worker runs: no restart, no storm."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from duebridge.config.load import load_config_text, resolved_store_url
from duebridge.errors import StoreUnfit
from duebridge.producer import Producer
from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.credentials import StoreCredentials, split_login
from duebridge.store.workers import Workers
from duebridge.worker.process import Runner
from duebridge.worker.reporting.status import StatusWriter
from duebridge_connectors.memory import MemoryPublisher
from tests.store.conftest import leave_old_nodes_to_the_collector
from tests.support.certificates import Certificates, make_certificates, tls_options
from tests.support.redis.least import grant
from tests.support.servers import free_port, redis_cluster, redis_server, wait_until

OLD, NEW = "canary/old@%", "canary:new?#"
ENCODED = {OLD: "canary%2Fold%40%25", NEW: "canary%3Anew%3F%23"}
USER = "worker"
CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers:
  here: {{type: memory}}
routes:
  reminders: {{target: {{broker: here, topic: reminders}}, shards: 4}}
"""
MOST_RECONNECTS = 12  # listener, loop, status, producer, and a lane's threads: one each
FIRST = 30  # of a worker that is cut off: one for each of its connections, and their next tries
REFUSALS, LEAST_S = 30, 1.5  # four shards and the rest are refused eight times a second, not twenty

pytestmark = pytest.mark.usefixtures("no_secret_is_logged")


class Site:
    """A worker and a producer on a server of their own; `admin` may do everything there."""

    def __init__(self, admin: Any, url: str, stack: ExitStack) -> None:
        self.admin = admin
        self.config = load_config_text(CONFIG.format(url=url), "duebridge.yaml")
        self.publisher = MemoryPublisher()
        self.connection, for_worker = self._connect(), self._connect()
        self.runner = Runner(self.config, for_worker, {"here": self.publisher})
        self.producer = Producer(self.config, self.connection, repeat_for_s=20)
        self.status = StatusWriter(self.runner.worker, Workers(for_worker, "duebridge"))
        self.sent = 0
        stack.callback(self.connection.close)
        self.runner.start()
        stack.callback(self.runner.drain)
        self.status.start()
        stack.callback(self.status.close)

    def _connect(self) -> Connection:
        read_url = partial(resolved_store_url, self.config)
        return open_connection(read_url(), repeat_for_s=10, read_url=read_url)

    def deliver(self, count: int = 20) -> None:
        """Schedule some, and wait until each was delivered once."""
        for _ in range(count):
            self.producer.schedule("reminders", b"x", delay="1ms")
        self.sent += count
        assert self.publisher.deliveries_arrive(self.sent, within_s=60)
        assert len(self.publisher.delivered) == self.sent
        assert self.runner.is_alive

    def cut_off(self) -> None:
        """Close every connection of the worker's user."""
        self.admin.execute_command("CLIENT", "KILL", "USER", USER)

    def connections(self) -> int:
        return int(self.admin.info("stats")["total_connections_received"])


@contextmanager
def server_of(kind: str, home: Path) -> Iterator[int]:
    if kind == "cluster":
        with redis_cluster(home) as url:
            yield int(url.rpartition(":")[2])
    else:
        with redis_server(home) as port:
            yield port


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], None]:
    """Replace the file of the password as Kubernetes does: at once."""

    def write(password: str) -> None:
        written = tmp_path / "next"
        written.write_text(ENCODED[password] + "\n")
        written.rename(tmp_path / "password")

    return write


@pytest.fixture(params=["redis", "redis+cluster"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, secret: Callable[[str], None]
) -> Iterator[Site]:
    secret(OLD)
    kind = request.param.rpartition("+")[2]
    with ExitStack() as stack:
        port = stack.enter_context(server_of(kind, tmp_path))
        admin = stack.enter_context(redis.Redis(port=port))
        admin.config_set("appendonly", "yes")
        grant(admin, "duebridge", USER, password=OLD)
        at = f"{USER}:${{file:{tmp_path}/password}}@127.0.0.1:{port}"
        yield Site(admin, f"{request.param}://{at}", stack)
    if kind == "cluster":
        leave_old_nodes_to_the_collector()


def test_password_rotated_while_a_worker_runs_is_used_without_a_restart(
    site: Site, secret: Callable[[str], None]
) -> None:
    site.deliver()
    site.admin.execute_command("ACL", "SETUSER", USER, f">{NEW}")
    secret(NEW)
    site.admin.execute_command("ACL", "SETUSER", USER, f"<{OLD}")
    before = site.connections()
    site.cut_off()
    site.deliver()
    assert site.connections() - before <= MOST_RECONNECTS


def test_password_that_the_file_has_too_late_is_asked_for_seldom_and_then_used(
    site: Site, secret: Callable[[str], None]
) -> None:
    site.deliver()
    site.admin.execute_command("ACL", "SETUSER", USER, f"<{OLD}", f">{NEW}")
    site.admin.execute_command("ACL", "LOG", "RESET")
    site.cut_off()
    wait_until(lambda: refusals(site.admin) >= FIRST, "the worker to be refused", 90)
    began, before = time.monotonic(), refusals(site.admin)
    wait_until(lambda: refusals(site.admin) >= before + REFUSALS, "the worker to be refused", 90)
    assert time.monotonic() - began >= LEAST_S, "a storm of reconnects"
    with pytest.raises(StoreUnfit, match="refused us"):
        site.producer.cancel("reminders", "x")
    secret(NEW)
    site.deliver()
    before = refusals(site.admin)
    site.deliver()
    assert refusals(site.admin) == before


def refusals(admin: Any) -> int:
    return sum(int(each["count"]) for each in admin.acl_log() if each["reason"] == "auth")


def test_certificate_replaced_while_a_worker_runs_is_used_without_a_restart(
    certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "next").mkdir()
    later = make_certificates(tmp_path / "next")
    live = tmp_path / "live"
    live.mkdir()
    install(certificates, live)
    with ExitStack() as stack:
        port = free_port()
        options = tls_options(certificates, port, "yes")
        admin = stack.enter_context(
            redis.Redis(port=stack.enter_context(redis_server(tmp_path, *options)))
        )
        admin.config_set("appendonly", "yes")
        grant(admin, "duebridge", USER, password="pw")  # noqa: S106
        files = f"ssl_ca_certs={live}/ca&ssl_certfile={live}/client&ssl_keyfile={live}/key"
        site = Site(admin, f"rediss://{USER}:pw@localhost:{port}/0?{files}", stack)
        site.deliver()
        names = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file")
        paths = (later.server_certificate, later.server_key, later.ca)
        words = [word for pair in zip(names, paths, strict=True) for word in pair]
        admin.execute_command("CONFIG", "SET", *words)
        install(later, live)
        before = site.connections()
        site.cut_off()
        site.deliver()
        assert site.connections() - before <= MOST_RECONNECTS


def install(files: Certificates, live: Path) -> None:
    for path, name in ((files.ca, "ca"), (files.client, "client"), (files.client_key, "key")):
        shutil.copy(path, live / name)


@pytest.mark.parametrize(
    ("url", "bare", "login"),
    [
        ("redis://u:p%40@h:1/0", "redis://h:1/0", ("u", "p@")),
        ("rediss+cluster://:p@h:1,g:2", "rediss+cluster://h:1,g:2", ("p",)),
        ("unix://u:p@/a/b.sock?db=1", "unix:///a/b.sock?db=1", ("u", "p")),
        ("redis://u@h/0", "redis://h/0", ("u", "")),
    ],
)
def test_split_login_takes_user_and_password_out_of_a_url(
    url: str, bare: str, login: tuple[str, ...]
) -> None:
    found, options = split_login(url)
    assert found == bare
    assert options["credential_provider"].get_credentials() == login
    assert "p" not in repr(options["credential_provider"]).removeprefix("StoreCredentials")


@pytest.mark.parametrize("url", ["redis://h:1/0", "redis://@h/0", "unix:///a?x=@"])
def test_split_login_of_a_url_without_one_gives_no_option(url: str) -> None:
    assert split_login(url) == (url, {})


@pytest.mark.parametrize("later", ["redis://h", "redis://[::1", None])
def test_login_that_cannot_be_read_now_stays_what_it_was(later: str | None) -> None:
    config = load_config_text(CONFIG.format(url="redis://${file:/no/where}@h"), "c")
    read_url = partial(resolved_store_url, config) if later is None else lambda: str(later)
    assert StoreCredentials("redis://u:p@h", read_url).get_credentials() == ("u", "p")
