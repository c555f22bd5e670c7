"""Records of a Kafka topic as envelopes."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from bridge.durations import MS_PER_UNIT
from connectors.spark.transforms.headers import carried, with_header

# As bridge.durations reads it, with no more digits than a decimal of Spark's can multiply.
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
    rows = with_header(records)
    made: dict[str, Column] = {
        "id": F.concat_ws(":", F.lit(topic_id), F.col("partition"), F.col("offset")),
        "body": F.col("value"),
        "key": F.col("key"),
        "headers": carried(F.col("headers")),
        **due_columns(delay_header, due_header),
        **{name: F.expr(text) for name, text in columns.items()},
    }
    kept = rows if where is None else rows.where(where)
    return kept.select(*(column.alias(name) for name, column in made.items()))


def due_columns(delay_header: str | None, due_header: str | None) -> dict[str, Column]:
    """Return when a record is due, by its headers: a delay from its own time, or epoch ms.

    A delay that cannot be read stays one, so that the writer refuses it in its words.
    """
    found: dict[str, Column] = {}
    instants: list[Column] = []
    if delay_header is not None:
        delay = F.col("header")[delay_header]
        is_read = delay.rlike(_DURATION)
        found["delay"] = F.when(~is_read, delay)
        instants.append(F.when(is_read, F.unix_millis("timestamp") + _ms(delay)))
    if due_header is not None:
        instants.append(F.col("header")[due_header].try_cast("bigint"))
    if instants:
        found["due_at"] = F.coalesce(*instants)
    return found


def _ms(delay: Column) -> Column:
    """Return the ms of a duration's text, rounded up."""
    number = F.regexp_extract(delay, _DURATION, 1).try_cast(_NUMBER)
    unit = F.regexp_extract(delay, _DURATION, 2)
    units = F.create_map(*(F.lit(each) for pair in MS_PER_UNIT.items() for each in pair))
    return F.ceil(number * units[unit]).cast("bigint")
