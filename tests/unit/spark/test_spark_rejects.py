"""Files of rejected rows."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from duebridge.durations import parse_duration_ms
from duebridge_connectors.spark.source.rejects import RejectsDirectory, RejectWriter


def test_reject_of_a_row_with_an_interval_writes_a_delay_that_can_be_sent_again(
    tmp_path: Path,
) -> None:
    directory = RejectsDirectory(str(tmp_path), "run")
    delays = [timedelta(days=400), None, timedelta(milliseconds=5)]
    batch = pa.record_batch({"id": ["a", "b", "c"], "delay": pa.array(delays, pa.duration("us"))})
    writer = RejectWriter(directory)
    writer.add(batch, dict.fromkeys(range(3), ("refused", "why")))
    directory.finish([str(writer.close())])
    (file,) = tmp_path.glob("*.parquet")
    texts = pq.read_table(file).column("delay").to_pylist()
    assert texts == ["34560000000ms", None, "5ms"]
    assert parse_duration_ms(texts[0]) == 400 * 86_400_000
