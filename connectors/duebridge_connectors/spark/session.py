"""The Spark session of a command: the cluster's under spark-submit, else a local one."""

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from duebridge.errors import ConfigError
from duebridge_connectors.spark.failures import FAILURES, job_error
from duebridge_connectors.spark.files.hadoop import S3_EXCLUDED, S3_JAR, S3_PACKAGES
from duebridge_connectors.spark.kafka_source import PACKAGE

# Only for local sessions: spark-submit and spark-defaults.conf set their own.
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "32",  # Spark's default of 200 costs more than it saves locally
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine starts Python slowly
    # It notes the line of each expression, at four calls of Java, for errors that nobody sees.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_OWN = {  # where nobody set another
    "spark.sql.session.timeZone": "UTC",  # the machine's zone would be a surprise
    "spark.sql.python.filterPushdown.enabled": "true",
}
# Only a session that was made with these settings reads Delta tables. Jobs that write or tidy one
# use `deltalake`, which needs neither jars nor settings.
DELTA_PACKAGE = "io.delta:delta-spark_2.13:4.4.0"  # of 4.2.0 reads fail after a checkpoint
EXTENSIONS = "spark.sql.extensions"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "spark.sql.catalog.spark_catalog"
_DELTA_SETTINGS = {
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # 50 tasks by default, for a small log
}
_JARS = ("spark.jars", "spark.jars.packages")
_KAFKA, _DELTA = "spark-sql-kafka-0-10_*.jar", "delta-spark_*.jar"
_LOGGING = Path(__file__).with_name("log4j2.properties")


@contextmanager
def opened_session(
    name: str,
    *,
    is_watched: bool = False,
    has_kafka: bool = False,
    has_delta: bool = False,
    has_s3: bool = False,
    more: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session and stop it at the end; `is_watched` shows a progress bar.

    With `has_kafka`, `has_delta`, `has_s3` a local session gets Spark's connectors: the jars named
    by `more`, those among Spark's own as in our image, or else Maven Central's. Under spark-submit
    that is the task of its `--packages`; Delta's settings are made here in each case.

    A `BridgeError` of a task is raised again; any other failure of Spark becomes a one-line
    `ConfigError` (an invalid query, a session that does not start) or `JobFailed`.
    """
    more = dict(more or {})
    if not (any(name in more for name in _JARS) or _is_submitted()):
        wanted = [(_KAFKA, PACKAGE)] * has_kafka + [(_DELTA, DELTA_PACKAGE)] * has_delta
        more |= _packages(wanted + [(S3_JAR, S3_PACKAGES)] * has_s3)
    if has_delta:
        more = delta_settings(_submitted(EXTENSIONS) | more)
    with quiet_logs():
        with deferred_interrupts():
            session = _started(name, is_watched, more)
        try:
            yield session
        except FAILURES as error:
            raise job_error(error) from error
        finally:
            session.stop()


def _started(name: str, is_watched: bool, more: Mapping[str, str]) -> SparkSession:
    """Build the session; raises `ConfigError`: what fails here is a setting, or the machine."""
    try:
        return _build(name, is_watched, more)
    except FAILURES as error:
        raise ConfigError(f"Spark does not start: {job_error(error)}") from error


def _is_submitted() -> bool:
    return "SPARK_ENV_LOADED" in os.environ


def _submitted(name: str) -> dict[str, str]:
    """Return a setting that spark-submit was given."""
    value = SparkConf().get(name) if _is_submitted() else None
    return {} if value is None else {name: value}


def _packages(wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the setting that fetches packages whose jars are not among Spark's own."""
    jars = Path(pyspark.__file__).parent / "jars"
    missing = [package for jar, package in wanted if not any(jars.glob(jar))]
    found = {"spark.jars.packages": ",".join(missing)} if missing else {}
    return found | ({"spark.jars.excludes": S3_EXCLUDED} if S3_PACKAGES in missing else {})


def _build(name: str, is_watched: bool, more: Mapping[str, str]) -> SparkSession:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        expected = "expected Java 17 or newer in PATH or JAVA_HOME; got none"
        raise ConfigError(f"java: {expected}; install one, such as openjdk-17-jre-headless")
    builder = SparkSession.builder.appName(f"duebridge {name}")
    if not _is_submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        builder = builder.config("spark.driver.extraJavaOptions", logging)
        for key, value in _DEFAULTS.items():
            builder = builder.config(key, value)
        builder = builder.config("spark.ui.showConsoleProgress", str(is_watched).lower())
    for key, value in more.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    given = session.sparkContext.getConf()
    for name, text in _OWN.items():
        if not given.contains(name):
            session.conf.set(name, text)
    return session


_INTERRUPTED_CALLS = (
    "KeyboardInterrupt while sending command.",
    "Exception occurred while shutting down connection",
)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, and restore the handler that was set before.

    For the start of a session: an interrupted JVM start prints long errors, and the handler that
    Spark installs calls the JVM from within a call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Suppress what py4j logs about a call that Ctrl-C interrupted: it is no error.

    And the JSON with two stacks that pyspark logs of an error in SQL: the command tells it.
    """
    filters: dict[logging.Logger, Callable[[logging.LogRecord], bool]] = {
        logging.getLogger(): _is_error,
        logging.getLogger("py4j.clientserver"): _is_error,
        PySparkLogger.getLogger("SQLQueryContextLogger"): lambda _: False,
    }
    for log, keeps in filters.items():
        log.addFilter(keeps)
    try:
        yield
    finally:
        for log, keeps in filters.items():
            log.removeFilter(keeps)


def _is_error(record: logging.LogRecord) -> bool:
    """Whether a call failed by itself.

    While a session starts, Spark's own handler of Ctrl-C may call the JVM within another call.
    """
    failure = record.exc_info[1] if record.exc_info else None
    is_within_call = "reentrant call" in str(getattr(failure, "cause", ""))
    return record.msg not in _INTERRUPTED_CALLS and not is_within_call


def delta_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to add to those given; other extensions stay."""
    others = [each.strip() for each in given.get(EXTENSIONS, "").split(",") if each.strip()]
    extensions = list(dict.fromkeys([*others, _EXTENSION]))
    return {**_DELTA_SETTINGS, **given, EXTENSIONS: ",".join(extensions)}


def check_delta_reader(spark: SparkSession) -> None:
    """Raise `ConfigError` for a session that cannot read Delta tables."""
    if _EXTENSION not in (spark.conf.get(EXTENSIONS, "") or ""):
        remedy = (
            f"start it with --packages {DELTA_PACKAGE} --conf {EXTENSIONS}={_EXTENSION}"
            f" --conf {_CATALOG}={_DELTA_SETTINGS[_CATALOG]}"
        )
        raise ConfigError(f"spark: expected a session with Delta's reader; got none: {remedy}")
