"""Rows of any input, and records of a Kafka topic, as the writer's columns."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.durations import MAX_MS, MS_PER_UNIT
from duebridge.headers import RESERVED, RESERVED_PREFIX
from duebridge_connectors.spark.rows.schema import GIVEN_COLUMNS, PACKED_COLUMNS


def select_columns(
    frame: DataFrame,
    expressions: Mapping[str, str],
    where: str | None = None,
    keep: tuple[str, ...] = (),
) -> DataFrame:
    """Return the rows that meet `where`, with the columns that the writer accepts.

    `expressions` are SQL over the input's columns, by the writer's names. Columns of the input that
    have such a name in any case, or are in `keep`, are passed on; all others are dropped. The names
    of packed rows count where all of them are there and no body is.
    """
    rows = frame if where is None else frame.where(where)
    names = _accepted_names(frame.columns, keep)
    made = {
        **{name: F.col(f"`{column}`") for column, name in names.items() if name not in expressions},
        **{name: F.expr(text) for name, text in expressions.items()},
    }
    return rows.select(*(column.alias(name) for name, column in made.items()))


def _accepted_names(columns: Sequence[str], keep: tuple[str, ...]) -> dict[str, str]:
    """Return the writer's name of each column that has one; the exact name goes before others."""
    lowered = {column.lower() for column in columns}
    is_cold = lowered >= PACKED_COLUMNS.keys() and "body" not in lowered
    accepted = PACKED_COLUMNS if is_cold else GIVEN_COLUMNS
    known = {name.lower(): name for name in (*accepted, *keep)}
    found = {column: known.get(column.lower()) for column in columns}
    return {
        column: name
        for column, name in found.items()
        if name is not None and (column == name or name not in found)
    }


# As in duebridge.durations, with at most the digits that a Spark decimal can multiply.
_DIGITS = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_PART = rf"({_DIGITS})(ms|[wdhms])"
_DURATION = rf"^\s*(?=[0-9]){''.join(f'(?:{_DIGITS}{unit})?' for unit in MS_PER_UNIT)}\s*$"
_NUMBER = "decimal(21,9)"
_LETTERS = "".join(sorted(set("".join(MS_PER_UNIT))))
_FEW_DIGITS = 9  # no unit takes so many beyond 64 bits


def envelopes_of_records(
    records: DataFrame,
    topic_id: str,
    columns: Mapping[str, str],
    *,
    delay_header: str | None = None,
    due_header: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Return Kafka records (`includeHeaders`) that meet `where` as the writer's columns.

    Value, key and headers are kept. The id is topic id, partition and offset: a recreated topic
    repeats offsets but not its id. `columns` are SQL over the records' columns, by the writer's
    names, and take precedence; they may use `header['x']`, the text of a header.
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
    """Return due columns from headers: a delay after the record's time, or epoch ms.

    An invalid delay is passed on, so that the writer refuses it. The rows get columns for values
    used more than once, which Spark would otherwise compute each time.
    """
    found: dict[str, Column] = {}
    instants: list[Column] = []
    if delay_header is not None:
        delay, delay_ms = F.col("_delay"), F.col("_delay_ms")
        rows = rows.withColumn("_delay", header_text(F.lit(delay_header)))
        rows = rows.withColumn("_delay_number", F.rtrim(delay, F.lit(_LETTERS)))
        rows = rows.withColumn("_delay_ms", _ms(delay, F.col("_delay_number")))
        is_valid = F.coalesce(delay_ms <= MAX_MS, F.lit(False))
        found["delay"] = F.when(~is_valid, delay)
        instants.append(F.when(is_valid, F.unix_millis("timestamp") + delay_ms))
    if due_header is not None:
        instants.append(header_text(F.lit(due_header)).try_cast("bigint"))
    if instants:
        found["due_at"] = F.coalesce(*instants)
    return rows, found


def _ms(text: Column, number: Column) -> Column:
    """Return a duration in ms, null for none; `number` is the text without letters at its end.

    One part of few digits, as nearly every delay is, costs a tenth of the patterns.
    """
    unit = F.substring(text, F.length(number) + 1, F.length(text))
    is_short = F.length(number).between(1, _FEW_DIGITS)
    is_short &= F.rtrim(number, F.lit("0123456789")) == ""
    short = number.try_cast("bigint") * _ms_per_unit()[unit]
    return F.when(is_short & unit.isin(*MS_PER_UNIT), short).otherwise(_ms_of_parts(text))


def _ms_per_unit() -> Column:
    return F.create_map(*(F.lit(part) for pair in MS_PER_UNIT.items() for part in pair))


def _ms_of_parts(text: Column) -> Column:
    """Return a duration in ms, each of its parts rounded up; null for none, and for too long."""

    def part_ms(part: Column) -> Column:
        number, unit = (F.regexp_extract(part, _PART, group) for group in (1, 2))
        return F.ceil(number.try_cast(_NUMBER) * _ms_per_unit()[unit]).try_cast("bigint")

    parts = F.regexp_extract_all(text, F.lit(_PART), F.lit(0))
    none = F.lit(0).cast("bigint")
    total = F.aggregate(parts, none, lambda sum_ms, part: F.try_add(sum_ms, part_ms(part)))
    return F.when(text.rlike(_DURATION), total)


def with_header(frame: DataFrame) -> DataFrame:
    """Add a column `header` for SQL: `header['x-delay']` is the last value of that header."""
    names = F.array_distinct(F.transform("headers", lambda header: header["key"]))
    texts = F.transform(names, header_text)
    return frame.withColumn("header", F.map_from_arrays(names, texts))


def forwarded_headers(headers: Column, *others: str) -> Column:
    """Return headers without those that duebridge sets, and without `others`.

    Headers are looked at one by one only where some of these names occurs at all: Spark interprets
    a lambda, but compiles the search.
    """
    taken = [*sorted(RESERVED), *others]

    def is_carried(header: Column) -> Column:
        name = F.lower(header["key"])
        return ~(name.isin(taken) | name.startswith(RESERVED_PREFIX))

    names = F.lower(F.concat_ws("\n", headers["key"]))
    some = reduce(or_, (F.contains(names, F.lit(name)) for name in [*taken, RESERVED_PREFIX]))
    return F.when(some, F.filter(headers, is_carried)).otherwise(headers)


def header_text(name: Column) -> Column:
    """Return the last value of a header as text, null if missing.

    For one header this costs a tenth of `with_header`.
    """
    names, values = (F.reverse(F.col("headers")[field]) for field in ("key", "value"))
    return F.get(values, F.array_position(names, name) - 1).cast("string")
