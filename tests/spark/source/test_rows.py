"""What becomes of each row of a write: stored, known already, or kept with the reason."""

import time
from base64 import b32hexencode
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from duebridge.errors import ConfigError, StoreUnavailable
from duebridge_connectors.spark.rows.schema import check_columns
from duebridge_connectors.spark.source.planning import plan_write
from tests.spark.by_hand import write_by_hand
from tests.spark.world import LATER_MS, World


def rejected(directory: Path) -> list[dict[str, Any]]:
    """All rows that a rejects output holds, as a reader finds them."""
    files = [each for each in directory.iterdir() if each.suffix == ".parquet"]
    return [row for each in files for row in pq.read_table(each).to_pylist()]


def row(name: str | None, body: str | None = "x", due_at: int | None = LATER_MS) -> dict[str, Any]:
    return {"id": name, "body": body, "due_at": due_at}


def derived(values: list[Any]) -> str:
    """The id as connectors/duebridge_connectors/spark/rows/ids.py states it."""
    digest = blake2b(msgspec.msgpack.encode(values), digest_size=13).digest()
    return b32hexencode(digest).decode()[:20].lower()


NTZ = "due_at: expected TIMESTAMP or BIGINT (epoch ms); got TIMESTAMP_NTZ, which has no time zone"
WRONG = [
    ("id string, due_at timestamp_ntz", NTZ),
    ("id string, due_at double", "due_at: expected TIMESTAMP or BIGINT"),
    ("id string", "due_at: missing"),
    ("due_at bigint", "id: expected a column id or option idColumns"),
    ("id int, due_at bigint", "id: expected STRING; got INT"),
    ("id string, due_at bigint, bodi string", "bodi: no such column, did you mean body?"),
    ("id string, delay bigint", "delay: expected STRING (as 15m)"),
    ("id string, delay string, headers array<string>", "headers: expected MAP<STRING"),
    (
        "id string, delay string, headers array<struct<col1: string, value: string>>",
        "ARRAY<STRUCT<name, value>>, where key is a name too; got ARRAY<STRUCT<COL1:STRING,VALUE",
    ),
    (
        "id string, delay string, target struct<topic:string>",
        "target: expected STRUCT of STRINGs, b",
    ),
]


@pytest.mark.parametrize(("columns", "expected"), WRONG)
def test_check_of_wrong_columns_names_each(
    spark: SparkSession, columns: str, expected: str
) -> None:
    given = spark.createDataFrame([], f"body string, {columns}").schema
    with pytest.raises(ConfigError) as refused:
        check_columns(given)
    assert expected in str(refused.value)


def test_write_of_bad_rows_stores_the_others_and_keeps_these(world: World) -> None:
    far = LATER_MS + 400 * 86_400_000
    bad = [
        row("far", due_at=far), row("null", body=None), row(None), row(""),
        row("large", "x" * 2000), row("no-due", due_at=None),
        row("negative", due_at=-1), row("li\nne"),
    ]  # fmt: skip
    rejects = world.home / "rejects"
    summary = write_by_hand(world, [row("good"), *bad, row("past", due_at=5)], rejects=rejects)
    assert (summary.accepted, summary.refused, summary.rows) == (2, 8, 10)
    assert world.ids("plain") == {"good", "past"}
    reasons = {row["id"]: row["reject_reason"] for row in rejected(rejects)}
    assert reasons.keys() == {"far", "null", None, "", "large", "no-due", "negative", "li\nne"}
    assert "within max_delay" in reasons["far"]
    assert "a key beside a body of None" in reasons["null"]
    assert reasons["negative"].startswith("due_at: expected epoch ms between")
    assert "due_at: expected exactly one" in reasons["no-due"]
    assert [path for path in rejects.iterdir() if path.is_dir()] == [], "no attempts are left"


@pytest.mark.parametrize("route", ["plain", "split"])
def test_write_of_many_rows_rejects_the_very_ones(world: World, route: str) -> None:
    """Rows are packed in chunks, and wait for a whole call of their shard."""
    names = [f"i{number}" for number in range(5000)]
    bad = {names[at] for at in (0, 999, 1000, 2499, 2500, 4999)}
    rows = [row(name, None if name in bad else "x") for name in names]
    rejects = world.home / "rejects"
    summary = write_by_hand(world, rows, route=route, rejects=rejects)
    assert (summary.accepted, summary.refused) == (4994, 6)
    assert {each["id"] for each in rejected(rejects)} == bad
    assert world.ids(route) == {*names} - bad


def test_write_again_changes_nothing_and_says_so(world: World) -> None:
    rows = [row(f"i{number}") for number in range(1500)]
    assert write_by_hand(world, rows, route="split").accepted == 1500
    again = write_by_hand(world, rows, route="split")
    assert str(again) == ("route split: 1,500 rows: 1,500 duplicate; nothing was changed")


def test_write_of_other_content_is_a_conflict_or_replaces(world: World) -> None:
    write_by_hand(world, [row("a"), row("b")])
    rejects = world.home / "rejects"
    other = [row("a", "other"), row("b")]
    summary = write_by_hand(world, other, rejects=rejects)
    assert (summary.conflict, summary.duplicate) == (1, 1)
    assert [each["reject_status"] for each in rejected(rejects)] == ["conflict"]
    assert write_by_hand(world, other, on_conflict="replace").replaced == 1


@pytest.mark.parametrize("below", ["", "/rejects"])
def test_write_with_rejects_that_cannot_be_written_is_refused_before_any_row(
    world: World, below: str
) -> None:
    (world.home / "taken").write_text("a file")
    with pytest.raises(ConfigError, match=r"option rejects: expected a directory .*/taken"):
        write_by_hand(world, [row("a")], rejects=f"{world.home}/taken{below}")
    assert world.ids("plain") == set()
    assert (world.home / "taken").read_text() == "a file"


def test_write_of_the_same_run_replaces_its_rejects(world: World) -> None:
    for run in ("r1", "r1", "r2"):
        bad = [row("a", body=None)]
        assert write_by_hand(world, bad, rejects=world.home / "rejects", run=run).refused == 1
    assert len(rejected(world.home / "rejects")) == 2


def test_write_of_id_columns_derives_the_same_ids_again(world: World) -> None:
    named = [("a", 1), ("a", 2), (None, 3)]
    rest = {"body": "x", "due_at": LATER_MS}
    rows = [{"who": who, "number": number, **rest} for who, number in named]
    first, again = (write_by_hand(world, rows, id_columns="who, number") for _ in range(2))
    assert (first.accepted, first.refused) == (2, 1)
    assert (again.duplicate, again.refused) == (2, 1)
    assert first.first_reason.startswith("who: expected a value to derive the id from")
    assert world.ids("plain") == {derived(["a", 1]), derived(["a", 2])}


def test_write_to_rabbitmq_refuses_what_it_cannot_carry(world: World) -> None:
    rows = [row("a") | {"key": "k"}, row("b") | {"key": None}, row("c", body=None) | {"key": None}]
    summary = write_by_hand(world, rows, route="amqp")
    assert (summary.accepted, summary.refused) == (1, 2)


def test_write_with_a_rate_takes_its_time(world: World) -> None:
    began = time.monotonic()
    rows = [row(f"i{number}") for number in range(600)]
    assert write_by_hand(world, rows, rows_per_second=1000).accepted == 600
    assert time.monotonic() - began > 0.4


def test_write_to_a_store_that_stays_away_is_refused_before_any_row(world: World) -> None:
    world.use("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable, match="did not answer"):
        write_by_hand(world, [row("a")], store_deadline="300ms")


def test_options_that_are_wrong_are_all_named(world: World) -> None:
    options = world.options("plain", idcolums="a", remember="soon", max_rejects="-1")
    with pytest.raises(ConfigError) as refused:
        plan_write(options, StructType())
    for option in ("idcolums: unknown, did you mean idColumns?", "remember: ", "maxRejects: "):
        assert f"option {option}" in str(refused.value)


def test_write_in_a_persons_name_is_journalled_so_and_the_next_write_is_nobodys(
    world: World,
) -> None:
    write_by_hand(world, [row("a")], actor="ada")
    write_by_hand(world, [row("b")])  # by the connection that the first one's task left
    assert world.journalled("plain") == [("accepted", "ada"), ("accepted", "")]
    with pytest.raises(ConfigError, match="option actor: expected at most 64 characters"):
        write_by_hand(world, [row("c")], actor="a" * 65)
