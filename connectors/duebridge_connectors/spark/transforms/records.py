"""Records of a Kafka topic as envelopes."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.durations import MS_PER_UNIT
from duebridge_connectors.spark.transforms.headers import carried, header_text, with_header

# As duebridge.durations reads it, with no more digits than a decimal of Spark's can multiply.
_DURATION = r"^\s*([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)\s*$"
_NUMBER = "decimal(21,9)"


def envelopes_of_records(
    records: DataFrame,
    topic_id: str,
    columns: Mapping[str, str],
    *,
    delay_header: str | None = None,
    due_header: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Return the writer's columns of Kafka's records (`includeHeaders`) that `where` holds for.

    Value, key and headers are kept. The id is the topic's own id, partition and offset: a topic
    made anew repeats offsets, and never its id. `columns` are SQL over the records' columns, by
    the writer's names, and win; `header['x']` is a header's text in them.
    """
    rows, due = with_due(with_header(records), delay_header, due_header)
    made: dict[str, Column] = {
        "id": F.concat_ws(":", F.lit(topic_id), F.col("partition"), F.col("offset")),
        "body": F.col("value"),
        "key": F.col("key"),
        "headers": carried(F.col("headers")),
        **due,
        **{name: F.expr(text) for name, text in columns.items()},
    }
    kept = rows if where is None else rows.where(where)
    return kept.select(*(column.alias(name) for name, column in made.items()))


def with_due(
    rows: DataFrame, delay_header: str | None, due_header: str | None
) -> tuple[DataFrame, dict[str, Column]]:
    """Return when each record is due, by its headers: a delay from its own time, or epoch ms.

    A delay that cannot be read stays one, so that the writer refuses it in its words. The rows come
    back with columns for what is looked at more than once: Spark would read it anew each time.
    """
    found: dict[str, Column] = {}
    instants: list[Column] = []
    if delay_header is not None:
        rows = rows.withColumn("_delay", header_text(F.lit(delay_header)))
        for place, name in enumerate(("_number", "_unit"), 1):
            rows = rows.withColumn(name, F.regexp_extract("_delay", _DURATION, place))
        found["delay"] = F.when(F.col("_number") == "", F.col("_delay"))
        instants.append(F.unix_millis("timestamp") + _ms())
    if due_header is not None:
        instants.append(header_text(F.lit(due_header)).try_cast("bigint"))
    if instants:
        found["due_at"] = F.coalesce(*instants)
    return rows, found


def _ms() -> Column:
    """Return the ms of a duration, rounded up; null of none."""
    units = F.create_map(*(F.lit(each) for pair in MS_PER_UNIT.items() for each in pair))
    return F.ceil(F.col("_number").try_cast(_NUMBER) * units[F.col("_unit")]).cast("bigint")
