"""Rows of the journal as the table has them."""

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it


def by_day(rows: DataFrame, found_on: date) -> DataFrame:
    """Add the column `day`: the UTC date of a row; a gap, which has no time, is of `found_on`."""
    # an instant's date is that of the session's time zone; whole days since 1970 are UTC's
    days = F.floor(F.unix_millis("at") / F.lit(86_400_000)).cast("int")
    return rows.withColumn("day", F.coalesce(F.date_from_unix_date(days), F.lit(found_on)))
