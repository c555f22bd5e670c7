"""A changed file is taken over once it has settled, or refused with its reasons."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import REGISTRY

from duebridge.config.models import Config
from duebridge.errors import StoreUnavailable
from duebridge.worker.reload import (
    Changes,
    Reload,
    SwapRefused,
    changes_between,
)
from tests.unit.config_text import WHOLE, loaded

OTHER = WHOLE.replace("topic: t", "topic: u")


class Worker:
    """Takes a configuration over, or raises what it was told to."""

    def __init__(self) -> None:
        self.config = loaded(WHOLE)
        self.calls = 0
        self.error: Exception | None = None

    def swap(self, config: Config) -> Changes:
        self.calls += 1
        if self.error is not None:
            raise self.error
        changes, self.config = changes_between(self.config, config), config
        return changes

    @property
    def topic(self) -> str | None:
        return self.config.routes["r"].target.topic


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "duebridge.yaml"
    path.write_text(WHOLE)
    return path


@pytest.fixture
def reload(path: Path, worker: Worker) -> Reload:
    return Reload(path, WHOLE, worker.swap)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


def look(reload: Reload, times: int = 2) -> None:
    for _ in range(times):
        reload.run_once()


def count(name: str) -> float:
    return REGISTRY.get_sample_value(f"duebridge_config_{name}_total") or 0.0


def test_unchanged_file_is_left_alone(reload: Reload, worker: Worker, logs: list[Any]) -> None:
    look(reload, 3)
    assert (worker.calls, logs) == (0, [])


def test_changed_file_is_taken_once_and_says_which_routes(
    reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    before = count("swapped")
    path.write_text(OTHER)
    look(reload, 5)
    assert (worker.topic, worker.calls) == ("u", 1)
    told = {"event": "config_swapped", "log_level": "info"}
    assert logs == [{**told, "added": [], "removed": [], "changed": ["r"]}]
    assert count("swapped") == before + 1


def test_file_that_is_still_being_written_is_not_taken(
    reload: Reload, path: Path, worker: Worker
) -> None:
    for size in range(len(WHOLE), len(OTHER + WHOLE), 40):
        path.write_text((OTHER + "# " + WHOLE.replace("\n", " "))[:size])
        reload.run_once()
    assert worker.calls == 0
    look(reload)
    assert worker.topic == "u"


def test_changed_file_is_taken_though_a_file_that_it_names_changes_at_every_read(
    reload: Reload, path: Path, worker: Worker
) -> None:
    secret = path.with_name("secret")
    path.write_text(OTHER.replace("amqp://localhost", f"${{file:{secret}}}"))
    for number in range(3):
        secret.write_text(f"amqp://{'x' * number}host")
        reload.run_once()
    assert worker.topic == "u"


def test_link_to_another_directory_is_noticed(tmp_path: Path, worker: Worker) -> None:
    # as a mounted ConfigMap changes: the file's own link stays, one above it is replaced
    for name, text in (("one", WHOLE), ("two", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "duebridge.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    path = tmp_path / "duebridge.yaml"
    path.symlink_to("..data/duebridge.yaml")
    reload = Reload(path, WHOLE, worker.swap)
    (tmp_path / "new").symlink_to("two")
    os.replace(tmp_path / "new", tmp_path / "..data")
    look(reload)
    assert worker.topic == "u"


def test_wrong_file_is_refused_once_with_every_mistake(
    reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    before = count("refused")
    path.write_text(WHOLE + "    shards: 0\nworker: {drain: 20s, batch: 0}\n")
    look(reload, 5)
    assert (worker.calls, worker.topic) == (0, "t")
    [line] = logs
    assert line["event"] == "config_refused"
    assert line["reasons"] == [
        f"{path}:8:13 routes.r.shards: expected at least 1; got 0",
        f"{path}:9:29 worker.batch: expected at least 1; got 0",
    ]
    assert count("refused") == before + 1


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda path: path.write_text("version: ["), ""),
        (Path.unlink, ": cannot be read: No such file or directory"),
    ],
)
def test_file_that_is_wrong_or_away_is_refused_once_and_taken_when_put_right(
    reload: Reload, path: Path, worker: Worker, logs: list[Any], break_it: Any, reason: str
) -> None:
    break_it(path)
    look(reload, 3)
    path.write_text(OTHER)
    look(reload)
    assert worker.topic == "u"
    assert [line["event"] for line in logs] == ["config_refused", "config_swapped"]
    assert logs[0]["reasons"][0].startswith(f"{path}{reason}")


def test_refusal_for_good_is_not_tried_again(
    reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    worker.error = SwapRefused(["store.url: x", "worker.batch: y"], may_pass=False)
    path.write_text(OTHER)
    look(reload, 5)
    assert worker.calls == 1
    assert [line["reasons"] for line in logs] == [["store.url: x", "worker.batch: y"]]


@pytest.mark.parametrize(
    "error", [SwapRefused(["routes.s: x"], may_pass=True), StoreUnavailable("away")]
)
def test_refusal_by_the_store_is_tried_until_it_passes_and_told_once(
    error: Exception, reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    worker.error = error
    path.write_text(OTHER)
    look(reload, 5)
    assert (worker.calls, worker.topic) == (4, "t")
    worker.error = None
    reload.run_once()
    assert worker.topic == "u"
    assert [line["event"] for line in logs] == ["config_refused", "config_swapped"]


def test_refusal_by_a_store_that_is_away_is_told_once_whatever_its_error_says(
    reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    path.write_text(OTHER)
    for error in ("refused", "did not answer a moment ago", "refused"):
        worker.error = StoreUnavailable(error)
        look(reload)
    assert [line["reasons"] for line in logs] == [["refused"]]


def test_asked_takes_the_file_at_once(reload: Reload, path: Path, worker: Worker) -> None:
    path.write_text(OTHER)
    reload.run_once(is_asked=True)
    assert worker.topic == "u"
    look(reload)
    assert worker.calls == 1


def test_asked_reads_anew_what_references_stand_for(
    tmp_path: Path, worker: Worker, logs: list[Any]
) -> None:
    secret = tmp_path / "topic"
    secret.write_text("t")
    text = WHOLE.replace("topic: t", f"topic: '${{file:{secret}}}'")
    path = tmp_path / "duebridge.yaml"
    path.write_text(text)
    reload = Reload(path, text, worker.swap)
    secret.write_text("u")
    look(reload)
    assert worker.calls == 0
    reload.run_once(is_asked=True)
    assert (worker.topic, logs[0]["changed"]) == ("u", ["r"])


@pytest.mark.parametrize(
    "error", [SwapRefused(["routes.s: x"], may_pass=True), StoreUnavailable("away")]
)
def test_asked_while_the_store_refuses_is_tried_until_it_passes_and_told_once(
    error: Exception, reload: Reload, worker: Worker, logs: list[Any]
) -> None:
    worker.error = error
    reload.run_once(is_asked=True)
    look(reload)
    worker.error = None
    look(reload)
    assert worker.calls == 4
    assert [line["event"] for line in logs] == ["config_refused", "config_swapped"]


def test_asked_while_the_file_is_away_is_done_once_it_is_back(
    reload: Reload, path: Path, worker: Worker
) -> None:
    path.unlink()
    reload.run_once(is_asked=True)
    path.write_text(WHOLE)
    look(reload)
    assert worker.calls == 1


def test_asked_for_what_is_refused_for_good_is_not_tried_again(
    reload: Reload, worker: Worker
) -> None:
    worker.error = SwapRefused(["store.url: x"], may_pass=False)
    reload.run_once(is_asked=True)
    look(reload)
    assert worker.calls == 1


@pytest.mark.parametrize("before", [None, "\N{ACUTE ACCENT}" * 300])
def test_refused_for_a_file_that_a_reference_names_is_taken_once_that_is_right(
    tmp_path: Path,
    reload: Reload,
    path: Path,
    worker: Worker,
    logs: list[Any],
    before: str | None,
) -> None:
    secret = tmp_path / "topic"
    if before is not None:  # too long for a topic
        secret.write_text(before)
    path.write_text(WHOLE.replace("topic: t", f"topic: '${{file:{secret}}}'"))
    look(reload, 4)
    assert worker.calls == 0
    secret.write_text("u")
    look(reload, 4)
    assert (worker.topic, worker.calls) == ("u", 1)
    assert [line["event"] for line in logs] == ["config_refused", "config_swapped"]


def test_file_that_a_reference_in_effect_names_is_left_alone(
    tmp_path: Path, reload: Reload, path: Path, worker: Worker
) -> None:
    secret = tmp_path / "topic"
    secret.write_text("u")
    path.write_text(WHOLE.replace("topic: t", f"topic: '${{file:{secret}}}'"))
    look(reload)
    secret.write_text("later")
    look(reload, 3)
    assert (worker.topic, worker.calls) == ("u", 1)


def test_pipe_is_not_read_again_and_refused_if_asked(
    reload: Reload, path: Path, worker: Worker, logs: list[Any]
) -> None:
    path.unlink()
    os.mkfifo(path)

    def run() -> None:
        look(reload)
        reload.run_once(is_asked=True)
        look(reload)

    looking = threading.Thread(target=run, daemon=True)
    looking.start()
    looking.join(10.0)
    assert not looking.is_alive()
    assert worker.calls == 0
    assert [line["event"] for line in logs] == ["config_not_watched", "config_refused"]
    assert logs[1]["reasons"] == [logs[0]["reason"]]
    assert logs[0]["reason"].startswith(f"{path}: no regular file")


def test_asked_again_tells_the_same_refusal_again(
    reload: Reload, path: Path, logs: list[Any]
) -> None:
    path.write_text("a")
    for _ in range(2):
        reload.run_once(is_asked=True)
    assert [line["event"] for line in logs] == ["config_refused"] * 2


def test_refusal_shows_no_secret(
    reload: Reload, path: Path, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_CANARY", "Canary7f3c")
    path.write_text(
        WHOLE + "    shards: ${DB_CANARY}\nstore: {url: 'redis://:Canary7f3c@h', x: 1}\n"
    )
    look(reload)
    assert logs
    assert "Canary7f3c" not in json.dumps(logs)
