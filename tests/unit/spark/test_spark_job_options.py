"""A job refuses a wrong option at once: not after it has read for an hour, not only at times."""

import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger

from duebridge.errors import ConfigError, EnvelopeError
from duebridge_connectors.spark import session
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.reconcile import run_reconcile
from duebridge_connectors.spark.jobs.replay import Replay, run_replay
from duebridge_connectors.spark.jobs.report import run_report

NO_SPARK: Any = None  # each is refused before Spark, the store or a broker is asked
CONFIG = """\
version: 1
store: {url: "redis://127.0.0.1:1"}
brokers:
  events: {type: kafka, bootstrap_servers: ["127.0.0.1:1"]}
routes:
  reminders:
    target: {broker: events, topic: reminders}
    dead_letter: {broker: events, topic: reminders-dlt}
    cold_tier: {path: /nowhere, horizon: 1h}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "duebridge.yaml"
    file.write_text(CONFIG)
    return str(file)


@pytest.mark.parametrize("name", ["late", "stuck_after", "clock_skew"])
def test_reconcile_with_a_wrong_duration_is_refused(config: str, name: str) -> None:
    given: dict[str, Any] = {name: "soon"}
    with pytest.raises(EnvelopeError, match=f"^{name}: expected a duration"):
        run_reconcile(NO_SPARK, config, **given)


@pytest.mark.parametrize("name", ["delay", "spread"])
def test_replay_with_a_wrong_duration_is_refused(config: str, name: str) -> None:
    wanted = Replay(topic="reminders-dlt", **{name: "soon"})
    with pytest.raises(EnvelopeError, match=f"^{name}: expected a duration"):
        run_replay(NO_SPARK, wanted, config=config)


OF_WRITE = [("remember", "soon", "a duration"), ("rows_per_second", 0, "a whole number")]


@pytest.mark.parametrize(("name", "value", "expected"), OF_WRITE)
def test_replay_with_a_wrong_option_of_the_write_is_refused_in_a_dry_run(
    config: str, name: str, value: str | int, expected: str
) -> None:
    with pytest.raises(ConfigError, match=f"expected {expected}"):
        run_replay(NO_SPARK, Replay(topic="reminders-dlt"), config=config, **{name: value})


@pytest.mark.parametrize(("name", "value", "expected"), OF_WRITE)
def test_hydrate_with_a_wrong_option_is_refused_though_nothing_is_due(
    config: str, name: str, value: str | int, expected: str
) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"expected {expected}"):
        run_hydrate(NO_SPARK, config=config, route="reminders", **given)


def test_report_with_a_wrong_path_of_violations_is_refused(config: str, tmp_path: Path) -> None:
    spark = Mock()
    spark.read.parquet.side_effect = FileNotFoundError("/nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run_report(spark, str(tmp_path), config=config, violations="/nowhere")


def test_session_that_does_not_start_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PySparkRuntimeError("Java gateway process exited")

    monkeypatch.setattr(session, "_build", fail)
    wrong = session.opened_session("job", more={"spark.driver.memory": "4x"})
    with pytest.raises(ConfigError, match="Spark does not start: Java gateway process"), wrong:
        pass


def test_session_keeps_pyspark_from_logging_what_the_command_tells() -> None:
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    record = logging.makeLogRecord({"msg": "[UNRESOLVED_COLUMN]"})
    with session.quiet_logs():
        assert not log.filter(record)
    assert log.filter(record)
