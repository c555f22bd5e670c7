"""The headers of Kafka's records: which ones an envelope takes along, and one by its name."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.headers import RESERVED, RESERVED_PREFIX


def with_header(frame: DataFrame) -> DataFrame:
    """Return the records with a column `header` for SQL: `header['x-delay']` is its last value."""
    names = F.array_distinct(F.transform("headers", lambda each: each["key"]))
    texts = F.transform(names, header_text)
    return frame.withColumn("header", F.map_from_arrays(names, texts))


def carried(headers: Column, *others: str) -> Column:
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
