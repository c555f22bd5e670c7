"""What pages and help tell one to type makes columns that are those of envelopes."""

import shlex

import pytest
from pyspark.sql import DataFrame, SparkSession

from duebridge_connectors.spark.schema import check_columns
from duebridge_connectors.spark.transforms.chosen import chosen_columns
from duebridge_connectors.spark.transforms.letters import replayed
from duebridge_connectors.spark.transforms.records import envelopes_of_records
from tests.spark.test_letters import letters
from tests.spark.test_records import records
from tests.spark.typed import told

ROWS = "id string, body string, order_id string, ships string, ships_at string, status string"


def given(line: str, option: str) -> list[str]:
    words = shlex.split(line)
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def made(spark: SparkSession, line: str, id_columns: tuple[str, ...]) -> DataFrame:
    columns = dict(each.split("=", 1) for each in given(line, "--column"))
    conditions = given(line, "--where")
    where = conditions[0] if conditions else None
    match line.split()[2]:
        case "schedule":
            rows = spark.createDataFrame([], ROWS)
            rows = rows.drop("id") if id_columns else rows
            return chosen_columns(rows, columns, where, id_columns)
        case "intake":
            return envelopes_of_records(records(spark), "T", columns, where=where)
        case _:
            dead = letters(spark)
            return replayed(dead if where is None else dead.where(where), columns)


@pytest.mark.parametrize("line", [line for line in told() if "--column" in line])
def test_columns_that_a_page_or_a_help_makes_are_those_of_envelopes(
    spark: SparkSession, line: str
) -> None:
    id_columns = tuple(given(line, "--id-columns"))
    check_columns(made(spark, line, id_columns).schema, id_columns)
