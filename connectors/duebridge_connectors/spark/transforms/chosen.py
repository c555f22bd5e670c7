"""Which columns of an input become an envelope's."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.schema import GIVEN_COLUMNS, PACKED_COLUMNS


def chosen_columns(
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
