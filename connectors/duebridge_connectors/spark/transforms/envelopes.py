"""Rows of any input, and records of a Kafka topic, as the writer's columns."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.durations import MS_PER_UNIT
from duebridge.headers import RESERVED, RESERVED_PREFIX
from duebridge_connectors.spark.source.schema import GIVEN_COLUMNS, PACKED_COLUMNS


def select_columns(
    frame: DataFrame,
    expressions: Mapping[str, str],
    where: str | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Return the rows that `where` holds for, with the columns that the writer takes.

    `expressions` are SQL over the input's columns, by the writer's names; a column of the input
    that has one of those names, or is in `keep`, is taken as it is; all others are left out.
    """
    rows = frame if where is None else frame.where(where)
    known = {*GIVEN_COLUMNS, *PACKED_COLUMNS, *keep}
    kept = [F.col(f"`{name}`") for name in frame.columns if name in known - set(expressions)]
    return rows.select(*kept, *(F.expr(text).alias(name) for name, text in expressions.items()))


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
        "headers": forwarded_headers(F.col("headers")),
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


def with_header(frame: DataFrame) -> DataFrame:
    """Return the records with a column `header` for SQL: `header['x-delay']` is its last value."""
    names = F.array_distinct(F.transform("headers", lambda each: each["key"]))
    texts = F.transform(names, header_text)
    return frame.withColumn("header", F.map_from_arrays(names, texts))


def forwarded_headers(headers: Column, *others: str) -> Column:
    """Return headers as they came, without those that duebridge sets, and without `others`."""
    taken = [*sorted(RESERVED), *others]

    def is_carried(each: Column) -> Column:
        name = F.lower(each["key"])
        return ~(name.isin(taken) | name.startswith(RESERVED_PREFIX))

    return F.filter(headers, is_carried)


def header_text(name: Column) -> Column:
    """Return the last value of a header as text, null where there is none.

    For one header this costs a tenth of what `with_header` does for all.
    """
    of_name = F.filter("headers", lambda each: each["key"] == name)
    return F.try_element_at(of_name, F.lit(-1))["value"].cast("string")
