"""Options are spelt as Spark's, or as in earlier versions; anything else is refused.

By a job at once: not after it has read for an hour, not only at times.
"""

import logging
import os
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger

from duebridge.errors import ConfigError, EnvelopeError, JobFailed
from duebridge_connectors.spark import session
from duebridge_connectors.spark.failures import job_error
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.jobs.reconcile import run_reconcile
from duebridge_connectors.spark.jobs.replay import Replay, run_replay
from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.source.message_first import message_first
from duebridge_connectors.spark.source.option_names import (
    spark_name,
    spark_options,
    warn_of_former,
)
from duebridge_connectors.spark.source.options import (
    JournalOptions,
    ReadOptions,
    WriteOptions,
    journal_options,
    read_options,
    write_options,
)

STORE = {"store": "redis://localhost"}
WRITE = {"config": "/etc/duebridge.yaml", "route": "r"}


@pytest.mark.parametrize("name", ["dueAfter", "dueafter", "DUEAFTER", "due_after"])
def test_read_of_an_option_in_any_spelling_is_the_same(name: str) -> None:
    assert read_options({**STORE, name: "1900000000000"}).due_after == 1_900_000_000_000


def test_read_of_a_journal_needs_no_second_option() -> None:
    given = {**STORE, "maxEntriesPerTrigger": "5", "onTrim": "gap"}
    options = journal_options(given)
    assert (options.stream, options.max_entries_per_trigger) == ("journal", 5)
    assert options == journal_options({**given, "stream": "journal"})


def test_every_option_is_read_by_the_name_that_python_calls_give_it() -> None:
    for options in (WriteOptions, ReadOptions, JournalOptions):
        for field in options.__struct_fields__:
            assert list(spark_options({field: 1})) == [spark_name(field)]
            assert "_" not in spark_name(field)
    assert write_options(spark_options({**WRITE, "rows_per_second": 7})).rows_per_second == 7


@pytest.mark.parametrize("run", ["2026/11/28", "/../..", "..", "", " ", "a b", "a" * 101, "a\n"])
def test_write_of_a_run_whose_name_is_no_part_of_a_files_name_is_refused(run: str) -> None:
    with pytest.raises(ConfigError, match="option run: expected 1 to 100 letters, digits"):
        write_options({**WRITE, "rejects": "/rejects", "run": run})


@pytest.mark.parametrize("run", ["2026-11-28", "night_1.b", "a" * 100, "living-" + "a" * 100])
def test_write_of_a_run_with_a_plain_name_takes_it(run: str) -> None:
    assert write_options({**WRITE, "rejects": "/rejects", "run": run}).run == run


def test_write_of_ids_used_once_that_may_replace_is_refused() -> None:
    with pytest.raises(ConfigError, match="option idUse: expected any beside onConflict=replace"):
        write_options({**WRITE, "idUse": "once", "onConflict": "replace"})


REFUSED = [
    ({"dueAftr": "0"}, "option dueAftr: unknown, did you mean dueAfter?"),
    ({"due_aftr": "0"}, "option due_aftr: unknown, did you mean dueAfter?"),
    ({"colour": "red"}, "option colour: unknown, expected one of config, content, dueAfter"),
    ({"page": "0"}, "option page: expected a whole number, 1 to 1000; got '0'"),
    ({"due_before": "soon"}, "option dueBefore: expected RFC 3339"),
    ({"dueAfter": "1", "due_after": "2"}, "option dueAfter: expected once; got due_after too"),
]


@pytest.mark.parametrize(("more", "said"), REFUSED)
def test_read_of_a_wrong_option_says_which(more: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options({**STORE, **more})
    assert said in str(refused.value)


def test_former_names_are_warned_of_once_together() -> None:
    with pytest.warns(FutureWarning) as found:
        warn_of_former({"due_after": "1", "store": "s", "store_deadline": "1s"})
    (warning,) = found
    said = "due_after is now dueAfter, store_deadline is now storeDeadline"
    assert str(warning.message).endswith(said)


def test_names_of_today_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_former({"dueAfter": "1", "checkpointLocation": "x"})


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "of Spark")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")


def test_error_in_a_worker_has_its_place_after_its_message(worker: None) -> None:
    with pytest.raises(JobFailed) as caught, message_first():
        raise JobFailed("expected this; got that")
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
    first, second, *_ = traceback.format_exception_only(caught.value)
    assert first == "duebridge.errors.JobFailed: expected this; got that\n"
    assert second.startswith("Traceback (most recent call last):")


def test_error_elsewhere_stays_as_it_is() -> None:
    with pytest.raises(JobFailed) as caught, message_first():
        raise JobFailed("no")
    assert not hasattr(caught.value, "__notes__")


NO_UTF8 = "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0"
TITLE = "Traceback (most recent call last):"
OF_WORKER = (  # as `message_first` has Spark show it
    f"An exception was thrown from the Python worker:\n{NO_UTF8}\n{TITLE}"
    '\n  File "x.py", line 24, in f\n    yield\n  File "pyarrow/array.pxi", line 4203, in _py\n'
)
OF_BATCH = (
    f"py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: {TITLE}"
    f'\n  File "x.py", line 7, in write\n    save()\nPythonException: {OF_WORKER}'
)
OF_QUERY = f"{OF_BATCH}\n SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: intake of t\n"
SAID = [
    (
        "An error occurred while calling o263.save.\n: org.apache.spark.SparkException: while"
        " reading file:///a\n\tat org.X.y(Z.scala:1)\nCaused by: java.lang.A: x\n\t... 1 more\n"
        "Caused by: java.lang.RuntimeException: file:/a is not a Parquet file\n\tat b\n",
        "while reading file:///a; file:/a is not a Parquet file",
    ),
    ("[FAILED_READ_FILE] while reading file:///a.parquet\n more\n", "[FAILED_READ_FILE] while"),
    (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 5, in f\n    read()\npyarrow.lib.ArrowInvalid: /a: no magic bytes\n',
        "pyarrow.lib.ArrowInvalid: /a: no magic bytes",
    ),
    (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 5, in f\nKeyError: 1\n\nDuring handling:\n\n'
        'Traceback (most recent call last):\n  File "x.py", line 7, in f\nOSError: /b is gone\n',
        "OSError: /b is gone",
    ),
    *[(text, NO_UTF8) for text in (OF_WORKER, OF_WORKER.rstrip(), OF_BATCH, OF_QUERY)],
]


@pytest.mark.parametrize(("text", "said"), SAID)
def test_cause_of_a_failure_is_the_line_that_names_it(text: str, said: str) -> None:
    error = job_error(Exception(text))
    assert isinstance(error, JobFailed)
    assert str(error).startswith(said)


# Jobs.

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
