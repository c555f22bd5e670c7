"""Every place that a secret can be in has a canary; none of them comes out, whatever goes wrong."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from duebridge.config.broker_access import LiveSettings
from duebridge.config.load import load_config, resolved_store_url
from duebridge.store.server.connection import open_connection
from tests.acceptance.site import fetch, up
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.command import ENVIRONMENT, Command, wait_until
from tests.support.servers import free_port, redis_server

PASSWORD = "canary/p@ss:%9?#"  # noqa: S105
IN_URL = quote(PASSWORD, safe="")
FORMS = {"inline": "kafka-python", "default": "librdkafka", "file": "librdkafka"}  # each client
CONFIG = """\
version: 1
store: {{url: "{url}"}}
worker: {{publish_deadline: 2s, drain: 1s}}
brokers:
  sasl:
    type: kafka
    client: {client}
    bootstrap_servers: ["localhost:{dead}"]
    options:
      security.protocol: SASL_SSL
      sasl.mechanism: PLAIN
      sasl.username: shop
      sasl.password: "{plain}"
      ssl.ca.location: {files.ca}
      ssl.certificate.location: {files.client}
      ssl.key.location: {files.locked_key}
      ssl.key.password: "{key}"
  rabbit:
    type: rabbitmq
    url: "amqps://shop:{encoded}@localhost:{dead}/"
    options:
      ssl_options:
        ca_certs: {files.ca}
        certfile: {files.client}
        keyfile: {files.locked_key}
        password: "{key}"
routes:
  sasl: {{target: {{broker: sasl, topic: t}}}}
  rabbit: {{target: {{broker: rabbit, exchange: "", routing_key: q}}}}
"""
# Runs the command line with every logger as loud as it can be.
LOUD = """\
import logging, sys
from duebridge.telemetry import logs
logs.LEVEL = logging.DEBUG
logs.QUIET_S = 0
for name in ("", "kafka", "pika", "redis", "duebridge", "duebridge_connectors"):
    logging.getLogger(name).setLevel(logging.DEBUG)
from duebridge.cli.app import app
from duebridge.cli.exits import run_guarded
CRASH
sys.exit(run_guarded(app))
"""
IN_WORKER = """\
from duebridge.worker.loop import Loop
def fail(self):
    connection, config = self.views[0].store, self
    raise RuntimeError("unexpected")
Loop.run_once = fail
"""
IN_START = """\
from duebridge.worker import process
def fail(*given, **more):
    raise RuntimeError("unexpected")
process.Runner.start = fail
"""
IN_PRODUCER = """\
from duebridge import Producer
with Producer.from_config("duebridge.yaml") as producer:
    producer._connection.run = None
    producer.schedule("sasl", b"x", delay="1h")
"""


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as port, redis.Redis(port=port) as admin:
        admin.config_set("appendonly", "yes")
        admin.execute_command("ACL", "SETUSER", "shop", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        yield f"redis://shop:{IN_URL}@127.0.0.1:{port}/0"


class Told:
    """A command whose secrets stand in the file in one form, and what all runs of it showed."""

    def __init__(self, home: Path, form: str, files: Certificates, url: str, client: str) -> None:
        self._home, self._form = home, form
        given = {
            "plain": self._written("PLAIN", PASSWORD),
            "encoded": self._written("ENCODED", IN_URL),
            "key": self._written("KEY", KEY_PASSWORD),
        }
        where = url.replace(IN_URL, given["encoded"])
        self.command = Command(home, url, "")
        text = CONFIG.format(url=where, dead=free_port(), files=files, client=client, **given)
        self.command.file.write_text(text)

    def _written(self, name: str, secret: str) -> str:
        if self._form == "inline":
            return secret.replace("$", "$$")
        if self._form == "default":
            return f"${{UNSET_{name}:-{secret}}}"
        (self._home / name).write_text(secret)
        return f"${{file:{self._home}/{name}}}"

    def __call__(self, *words: str, code: int | None = None) -> str:
        done = self.command(*words)
        assert code is None or done.code == code, done
        assert "a defect" not in done.err
        return clean(done.out + done.err)

    def program(self, text: str, *words: str) -> str:
        """Run a Python program to its end."""
        done = subprocess.run(
            [sys.executable, "-c", text, *words],
            cwd=self._home,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return clean(done.stdout + done.stderr)

    def worker(self, crash: str, until: str) -> str:
        """Run a worker, as loud as it can be, until its log has a word; return all it showed."""
        log = self._home / "worker.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", LOUD.replace("CRASH", crash), "run", "--health-port", "0"],
                cwd=self._home,
                env=ENVIRONMENT,
                stderr=stderr,
            )
        with up(process, log) as worker:
            wait_until(lambda: until in log.read_text(), until)
            port = worker.health_port()
            pages = [fetch(port, page)[1] for page in ("/metrics", "/readyz", "/livez", "/due")]
        return clean(log.read_text() + "".join(pages))


def clean(shown: str) -> str:
    """Assert that no secret is in a text, in whatever spelling; returns it."""
    padded = [base64.b64encode(bytes(pad) + b"canary").decode() for pad in range(3)]
    encoded = [padded[0], padded[1][2:-3], padded[2][3:-2]]
    for spelling in ("canary", *encoded, b"canary".hex()):
        lines = [line for line in shown.splitlines() if spelling in line]
        assert lines == [], f"{len(lines)} lines show {spelling}"
    return shown


@pytest.fixture(params=["inline", "file"])
def told(
    request: pytest.FixtureRequest, certificates: Certificates, store_url: str, tmp_path: Path
) -> Told:
    form = request.param
    return Told(tmp_path, form, certificates, store_url, FORMS[form])


# A default stands in the file as `inline` does, and matters to what prints the file alone.
@pytest.mark.parametrize(
    "told", ["inline", "file", pytest.param("default", marks=pytest.mark.long)], indirect=True
)
def test_commands_on_a_store_that_answers_show_no_secret(told: Told) -> None:
    for output in ("yaml", "json"):
        assert "sasl.password" in told("config", "render", "--output", output, code=0)
    told("config", "check", code=0)
    told("doctor", "--output", "json", code=4)
    told("send", "sasl", "x", "--delay", "1h", "--id", "a", code=0)
    for line in ("stats", "get sasl a", "events", "ls sasl", "acl"):
        told(*line.split())


MORE_FAULTS = [pytest.param(fault, marks=pytest.mark.long) for fault in ("cut", "option")]


@pytest.mark.parametrize("fault", ["password", *MORE_FAULTS])
def test_commands_on_a_store_that_refuses_show_no_secret(
    fault: str, certificates: Certificates, store_url: str, tmp_path: Path
) -> None:
    urls = {
        "password": store_url.replace(IN_URL, "canary-wrong"),
        "cut": store_url.replace(IN_URL, "canary/#?@"),
        "option": f"{store_url}?pasword=canary",
    }
    told = Told(tmp_path, "inline", certificates, urls[fault], "kafka-python")
    for line in ("stats", "config render", "acl", "config check --connect"):
        told(*line.split())
    if fault == "password":  # a worker asks a store that is away again and again
        told("run", code=3)
    assert "Traceback" in told.program(IN_PRODUCER)


def test_worker_with_every_logger_at_debug_shows_no_secret(told: Told) -> None:
    told("send", "sasl", "x", "--delay", "1ms", code=0)
    told("send", "rabbit", "x", "--delay", "1ms", code=0)
    shown = told.worker("", "rabbitmq_not_connected")
    assert "debug" in shown


def test_worker_that_breaks_down_shows_no_secret(told: Told) -> None:
    assert "loop_failed" in told.worker(IN_WORKER, "loop_failed")


def test_start_and_producer_that_break_down_show_no_secret(told: Told) -> None:
    assert "a defect in duebridge: RuntimeError" in told.program(
        LOUD.replace("CRASH", IN_START), "run"
    )
    assert "TypeError" in told.program(IN_PRODUCER)


def test_values_that_hold_secrets_show_none(told: Told) -> None:
    config = load_config(told.command.file)
    connection = open_connection(resolved_store_url(config))
    connection.load_scripts()
    pool = connection.client.connection_pool
    live = LiveSettings(lambda: config.brokers["sasl"].model_dump())
    held = (config, config.store, config.brokers, connection, connection.client, pool, live)
    clean(repr(held) + str(config) + repr(pool.connection_kwargs))
    connection.close()


MISTAKES = ["sasl.pasword: P", "sasl.password: [P]", "ssl.key.pswd: P"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_beside_a_secret_show_none(
    mistake: str, certificates: Certificates, store_url: str, tmp_path: Path
) -> None:
    told = Told(tmp_path, "inline", certificates, store_url, "kafka-python")
    text = told.command.file.read_text()
    line = f"      {mistake.replace('P', 'canary')}\n"
    told.command.file.write_text(text.replace("    options:\n", f"    options:\n{line}", 1))
    for words in ("config check", "config render", "run", "doctor"):
        told(*words.split())
