"""Batch and stream writer: each task runs a `Loader`, the commit publishes its rejects.

The commit follows the last task. Envelopes stay stored even if it never happens; running the job
again is safe, because ids derive from the data and the store remembers them.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.filesystem import write_file
from duebridge_connectors.spark.source.loader import Loader, Summary
from duebridge_connectors.spark.source.message_first import message_first
from duebridge_connectors.spark.source.planning import WriteJob
from duebridge_connectors.spark.source.rejects import RejectsDirectory, RejectWriter


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The counts of one attempt of a task, and its file of rejects."""

    summary: Summary
    rejects: str | None


class _TaskWriter:
    """What the batch and the stream writer share."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job

    @message_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run one attempt of a task; raises `StoreError` if the store stays unreachable."""
        _check_is_within(self._job.options.max_connections)
        rejects = RejectWriter(rejects_directory(self._job))
        connected = self._job.address.connect_task(self._job.options.actor)
        with connected as connection, Loader(self._job, connection, rejects) as loader:
            for batch in iterator:
                loader.load(batch)
            loader.finish()
        return TaskResult(loader.summary(), rejects.close())

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int = 0,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Remove the files of the attempts, and report what is stored nevertheless."""
        if directory := rejects_directory(self._job):
            directory.discard()
        done = Summary.of(self._job.route.name, [result.summary for result in _done(messages)])
        _say(f"not finished; done so far: {done}; run it again: stored rows count as duplicates")


class BatchWriter(_TaskWriter, DataSourceArrowWriter):
    """Writer of `df.write`."""

    @message_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish rejects and report the counts; raises `JobFailed` for too many rejects."""
        _commit(self._job, _done(messages), self._job.options.summary)


class StreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`; a repeated batch replaces its earlier rejects."""

    @message_first()
    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish rejects and report the counts; raises `JobFailed` for too many rejects."""
        name = f"batch-{batchId:09}"
        directory = self._job.options.summary
        _commit(self._job, _done(messages), directory and f"{directory}/{name}.json", f"{name}-")


def _check_is_within(most: int | None) -> None:
    """Refuse a task that may be one too many, before it connects."""
    context = TaskContext.get()
    if most is not None and context is not None and context.partitionId() >= most:
        raise ConfigError(
            f"option maxConnections: expected at most {most} partitions, a connection each; got"
            f" more: write frame.coalesce({most})"
        )


def rejects_directory(job: WriteJob) -> RejectsDirectory | None:
    """Return the directory of a job's rejects, None for none."""
    rejects = job.options.rejects
    return None if rejects is None else RejectsDirectory(job.stores.place(rejects), job.run)


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    return [message for message in messages if isinstance(message, TaskResult)]


def _commit(job: WriteJob, done: list[TaskResult], summary_at: str | None, part: str = "") -> None:
    if directory := rejects_directory(job):
        directory.finish([result.rejects for result in done if result.rejects], part)
    summary = Summary.of(job.route.name, [result.summary for result in done])
    if summary_at:
        write_file(job.stores.place(summary_at), msgspec.json.encode(summary))
    else:
        _say(str(summary))
    most = job.options.max_rejects
    if most is not None and summary.rejects > most:
        where = f"; they are in {job.options.rejects}" if job.options.rejects else ""
        raise JobFailed(
            f"route {summary.route}: expected at most {most} rows refused (maxRejects); got"
            f" {summary.rejects}, the first: {summary.first_reason}{where}"
        )


def _say(text: str) -> None:
    """Write to stderr: a commit runs in its own process, without the driver's logger."""
    print(f"duebridge: {text}", file=sys.stderr)  # noqa: T201
