"""Rows that were not stored, kept as they came, with the reason: repaired, they can be sent again.

Each attempt of a task writes a file of its own, if it has anything to write; only those of the
attempts that count are put in place when the job is committed.
"""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from duebridge_connectors.spark.outputs import Directory

STATUS, REASON = "reject_status", "reject_reason"


class Rejects:
    """Takes the refused rows of one attempt; without a directory it only counts them."""

    def __init__(self, directory: Directory | None) -> None:
        self.count = 0
        self.first_reason = ""
        self._directory = directory
        self._name = f"{uuid4().hex}.parquet"
        self._stream: Any = None
        self._writer: Any = None

    def keep(self, batch: pa.RecordBatch, refused: Mapping[int, tuple[str, str]]) -> None:
        """Keep rows of a batch by their place, with their status and reason."""
        if not refused:
            return
        self.count += len(refused)
        places = sorted(refused)
        self.first_reason = self.first_reason or refused[places[0]][1]
        if self._directory is not None:
            why = [refused[place] for place in places]
            self._write(self._directory, _with_reasons(batch, places, why))

    def close(self) -> str | None:
        """Finish the file and return its name; None where there is none."""
        if self._writer is None:
            return None
        self._writer.close()
        self._stream.close()
        return self._name

    def _write(self, directory: Directory, rows: Any) -> None:
        if self._writer is None:
            self._stream = directory.begin(self._name)
            self._writer = pq.ParquetWriter(self._stream, rows.schema, compression="zstd")
        self._writer.write_table(rows)


def _with_reasons(batch: pa.RecordBatch, places: list[int], why: list[tuple[str, str]]) -> Any:
    rows = pa.Table.from_batches([batch]).take(pa.array(places))
    rows = rows.append_column(STATUS, pa.array([status for status, _ in why], pa.string()))
    return rows.append_column(REASON, pa.array([reason for _, reason in why], pa.string()))
