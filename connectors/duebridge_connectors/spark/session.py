"""The Spark session of a command: the cluster's under spark-submit, else a local one."""

import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duebridge import errors
from duebridge.errors import BridgeError, ConfigError, JobFailed
from duebridge_connectors.spark.kafka_source import PACKAGE

# Set only where neither spark-submit nor spark-defaults.conf says otherwise.
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "32",  # of Spark's own 200 each costs more than it does here
}
_ZONE = "spark.sql.session.timeZone"
_JARS = ("spark.jars", "spark.jars.packages")
_LOGGING = Path(__file__).with_name("log4j2.properties")
_OURS = re.compile(r"bridge\.errors\.(\w+): (.+)")


@contextmanager
def opened_session(
    name: str,
    *,
    is_watched: bool = False,
    has_kafka: bool = False,
    more: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Give a session that is stopped at the end; `is_watched` shows a bar as stages go on.

    With `has_kafka` a session that is begun here has Spark's Kafka connector: the jars that `more`
    names, or that lie among Spark's own as in our image, else those of Maven Central. Where
    spark-submit began it, that is its `--packages`.

    An error of ours that a task raised comes out as it was, any other failure of Spark as
    `ConfigError` (a query that cannot be) or `JobFailed`, in one line.
    """
    more = more or {}
    if has_kafka and not (any(each in more for each in _JARS) or _is_submitted() or _has_kafka()):
        more = {**more, "spark.jars.packages": PACKAGE}
    with quiet_py4j():
        with deferred_interrupts():
            session = _build(name, is_watched, more)
        try:
            yield session
        except PySparkException as error:
            raise job_error(error) from error
        finally:
            session.stop()


def _is_submitted() -> bool:
    return "SPARK_ENV_LOADED" in os.environ


def _has_kafka() -> bool:
    return any(Path(pyspark.__file__).parent.glob("jars/spark-sql-kafka-0-10_*.jar"))


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
    if not session.sparkContext.getConf().contains(_ZONE):  # the machine's own would be a surprise
        session.conf.set(_ZONE, "UTC")
    return session


def job_error(error: PySparkException) -> BridgeError:
    """Return what a failure of Spark is to a person: ours where a task raised one of ours."""
    text = str(error)
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, BridgeError):
            return kind(message)
    first = next(filter(None, map(str.strip, text.splitlines())), type(error).__name__)
    is_query = type(error).__name__ in ("AnalysisException", "ParseException")
    return ConfigError(first) if is_query else JobFailed(first)


_NO_NEWS = (
    "KeyboardInterrupt while sending command.",
    "Exception occurred while shutting down connection",
)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, and be handled after it as before it.

    Around the start of a session: a JVM that is left alone half-way complains at length, and the
    handler that Spark sets then calls the JVM from within a call.
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
def quiet_py4j() -> Iterator[None]:
    """Keep py4j from logging a call that Ctrl-C ended, and its connection: that is no error."""
    logs = [logging.getLogger(name) for name in (None, "py4j.clientserver")]
    for log in logs:
        log.addFilter(_is_news)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg not in _NO_NEWS
