"""The log of a real worker: every line is JSON, one when something goes and one when it is back."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog

from duebridge.errors import StoreError, StoreUnavailable
from duebridge.ports.publisher import CONFIRMED, Outcome, Verdict
from duebridge.telemetry.logs import QUIET_S, LibraryHandler
from tests.acceptance.site import fetch, running
from tests.support.command import Command, wait_until
from tests.support.floor import Floor
from tests.support.servers import free_port

DEAD = """\
brokers:
  kafka: {{type: kafka, bootstrap_servers: ["127.0.0.1:{port}"]}}
  fast: {{type: kafka, bootstrap_servers: ["127.0.0.1:{port}"], client: librdkafka}}
  rabbit: {{type: rabbitmq, url: "amqp://guest:guest@127.0.0.1:{port}/"}}
routes:
  kafka: {{target: {{broker: kafka, topic: t}}}}
  fast: {{target: {{broker: fast, topic: t}}}}
  rabbit: {{target: {{broker: rabbit, exchange: "", routing_key: q}}}}
"""
BROKERS = {"kafka", "fast", "rabbit"}
LOUD = """\
import gc, logging, threading, warnings
from duebridge.telemetry.logs import configure_logs
configure_logs()
warnings.warn("a warning")
logging.getLogger("library").error("from a %s", "library")
logging.getLogger("misused").error("%d", "no number")
logging.getLogger("quiet").info("not shown")
def fail():
    password = "canary"
    raise ValueError("in a thread")
thread = threading.Thread(target=fail, name="worker-7")
thread.start(); thread.join()
class Bad:
    def __del__(self):
        raise ValueError("in __del__")
Bad(); gc.collect()
"""


def reconfigure(duebridge: Command, blocks: str) -> None:
    store = f"version: 1\nstore: {{url: {json.dumps(duebridge.url)}}}\n"
    duebridge.file.write_text(store + blocks)


def test_log_of_a_worker_whose_brokers_are_dead_is_json_with_a_line_each(
    duebridge: Command,
) -> None:
    reconfigure(duebridge, "worker: {publish_deadline: 2s}\n" + DEAD.format(port=free_port()))
    with running(duebridge, "--health-port", "0") as worker:
        port = worker.health_port()
        wait_until(lambda: len(worker.logged("lane_stopped")) == len(BROKERS), "the lanes to stop")

        def names() -> set[str]:
            return {line.split(":")[0] for line in fetch(port, "/readyz")[1].splitlines()}

        # Of a route that the loop has not looked at yet it says so, too.
        wait_until(lambda: names() == {f"broker {name}" for name in BROKERS}, "only those")
        assert fetch(port, "/readyz")[0] == 503
        worker.end()
    lines = worker.logged()  # raises unless every line is JSON
    stopped = [line for line in lines if line["event"] == "lane_stopped"]
    assert {line["broker"] for line in stopped} == BROKERS
    assert len(stopped) == len(BROKERS)
    for line in lines:
        assert not re.search(r"\b(\w*Error): \1\b", line.get("error", "")), line


def test_worker_with_a_wrong_password_is_not_ready_and_says_so_everywhere(
    duebridge: Command, rabbitmq_url: str
) -> None:
    at = urlsplit(rabbitmq_url)
    wrong = f"amqp://guest:wrong-canary@{at.hostname}:{at.port}/"
    route = '  r: {target: {broker: rabbit, exchange: "", routing_key: q}}'
    reconfigure(
        duebridge,
        f'brokers:\n  rabbit: {{type: rabbitmq, url: "{wrong}"}}\nroutes:\n{route}\n',
    )
    with running(duebridge, "--health-port", "0") as worker:
        port = worker.health_port()
        wait_until(lambda: worker.logged("lane_stopped"), "the lane to stop")
        (line,) = worker.logged("lane_stopped")
        assert "ACCESS_REFUSED" in line["error"]
        wait_until(lambda: fetch(port, "/readyz")[1].startswith("broker rabbit: "), "only that")
        status, body = fetch(port, "/readyz")
        assert status == 503
        assert "ACCESS_REFUSED" in body
        assert fetch(port, "/livez")[0] == 200
        wait_until(lambda: "does not reach it" in duebridge("doctor").out, "the doctor to know")
        found = [each["found"] for each in duebridge("doctor", "--output", "json").json_lines()]
        (text,) = [each for each in found if "does not reach it" in each]
        assert "ACCESS_REFUSED" in text
        worker.end()
    assert "canary" not in text + body + json.dumps(worker.logged())


def test_log_of_libraries_warnings_and_threads_is_json(tmp_path: Path) -> None:
    program = tmp_path / "loud.py"
    program.write_text(LOUD)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = [(line["event"], line.get("logger", line.get("thread"))) for line in lines]
    assert events == [
        ("library", "py.warnings"),
        ("library", "library"),
        ("library", "misused"),
        ("thread_failed", "worker-7"),
        ("error_ignored", None),
    ]
    assert lines[1]["says"] == "from a library"
    assert "canary" not in done.stderr


def test_library_that_repeats_itself_gets_a_line_a_while_with_a_count() -> None:
    now = 0.0
    handler = LibraryHandler(lambda: now)
    record = logging.LogRecord("kafka", logging.ERROR, "", 0, "refused", (), None)
    other = logging.LogRecord("other", logging.ERROR, "", 0, "else", (), None)
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            handler.emit(record)
        handler.emit(other)
        now = QUIET_S
        handler.emit(record)
    assert [(each["logger"], each.get("omitted")) for each in logs] == [
        ("kafka", None),
        ("other", None),
        ("kafka", 3),
    ]


def logged(floor: Floor, *ms: int) -> list[dict[str, Any]]:
    """Let the worker turn after each of these times; return what it logs at info and above."""
    with structlog.testing.capture_logs() as logs:
        for each in ms:
            floor.turn(each)
    return [dict(each) for each in logs if each["log_level"] != "debug"]


@pytest.mark.parametrize(
    ("error", "begins", "ends"),
    [
        (StoreUnavailable("no answer"), "store_unavailable", "store_back"),
        (StoreError("NOPERM"), "store_failed", "store_works"),
    ],
)
def test_log_of_a_store_that_fails_is_a_line_at_both_ends_with_a_count(
    floor: Floor, monkeypatch: pytest.MonkeyPatch, error: StoreError, begins: str, ends: str
) -> None:
    def fail() -> None:
        raise error

    floor.turn()
    with monkeypatch.context() as patch:
        for view in floor.views.values():
            patch.setattr(view, "refresh", fail)
        (begin,) = logged(floor, *[2000] * 10)
        assert floor.worker.sleep_s() > 0
    (end,) = logged(floor, 2000, 2000)
    assert (begin["event"], end["event"]) == (begins, ends)
    assert str(error) in begin["error"]
    assert (end["after_s"], end["failures"]) == (20.0, 20)


def test_log_of_settling_that_fails_is_a_line_at_both_ends(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailable("no answer")

    floor.turn()
    with monkeypatch.context() as patch:
        patch.setattr(floor.stores["r"], "ack", fail)
        floor.schedule("a", delay="1s")
        (begin,) = logged(floor, 1000)
        floor.schedule("b", delay="1s")
        assert logged(floor, 1000, 2000) == []
    assert (begin["event"], begin["error"]) == ("settle_failed", "no answer")
    floor.schedule("c", delay="1s")
    (end,) = logged(floor, 1000)
    assert (end["event"], end["failures"]) == ("settle_works", 2)


def test_log_of_deaths_that_the_store_found_has_reason_and_count(
    build_floor: Callable[..., Floor],
) -> None:
    floor = build_floor(poison=1, lease="30s", dead_letter=None)
    floor.turn()
    floor.schedule("late", "later", delay="1s", expires="2s")
    lines = logged(floor, 3000)
    assert [(each["event"], each["reason"], each["count"]) for each in lines] == [
        ("buried", "expired", 2)
    ]
    floor.poison("deadly", lease_ms=30_000)
    lines = logged(floor, 0)
    assert [(each["event"], each.get("reason")) for each in lines] == [
        ("reclaimed", None),
        ("buried", "poison"),
    ]


def test_log_of_a_held_target_is_a_line_at_both_ends_and_none_a_try(floor: Floor) -> None:
    missing = Outcome(Verdict.TARGET_FAILED, error_class="Missing", error_message="no topic t")
    floor.publisher.script(lambda _: missing)
    floor.schedule("a", "b", delay="1s")
    lines = logged(floor, *[1000] * 60)
    assert [(each["event"], each.get("error")) for each in lines] == [
        ("target_held", "Missing: no topic t")
    ]
    floor.publisher.script(lambda _: CONFIRMED)
    (line,) = logged(floor, *[1000] * 5)
    assert (line["event"], line["target"]) == ("target_up", "memory:t")
    assert line["failures"] >= 50
