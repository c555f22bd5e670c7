"""The cold tier in an object store or on HDFS, with Spark and without: round trip, kills."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duebridge.config.load import load_config
from duebridge.config.models import HOUR_MS, ColdTier
from duebridge.store.due_window import ANY_TIME
from duebridge_connectors.spark.cold.cold_reader import read_cold_rows
from duebridge_connectors.spark.cold.commit_log import SCHEDULED, ColdLog, Commit
from duebridge_connectors.spark.cold.compaction import FEW, CompactionSummary, compact
from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.cold.parquet.slices import range_folder
from duebridge_connectors.spark.cold.sweep import SweepSummary, sweep
from duebridge_connectors.spark.files.hadoop import is_s3, s3_settings
from duebridge_connectors.spark.files.location import FileLocation, Stores
from duebridge_connectors.spark.filesystem import open_filesystem, open_output, read_file
from duebridge_connectors.spark.jobs.journal import run_journal
from duebridge_connectors.spark.jobs.reconcile import run_reconcile
from duebridge_connectors.spark.jobs.report import run_report
from duebridge_connectors.spark.jobs.schedule import run_schedule
from duebridge_connectors.spark.rows.arrow import arrow_schema
from duebridge_connectors.spark.rows.schema import COLD
from duebridge_connectors.spark.table.journal_table import JournalTable
from tests.spark.cold_route import ColdRoute, listed
from tests.spark.journal.journal_by_hand import QUERY, add_batch
from tests.spark.object_servers import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.spark.world import LATER_MS, World
from tests.support.checkout import downloaded
from tests.support.spark.launch import AS_WORDS

IDS = ["a", "b", "c", "d"]


@pytest.fixture
def place(world: World, s3: S3Server) -> FileLocation:
    """The directory of all tiers of the world, which its configuration has from now on."""
    secret = world.home / "secret"
    secret.write_text(SECRET_KEY)  # a session that runs already would not see a variable
    options = s3.options() | {
        "access_key_id": ACCESS_KEY,
        "secret_access_key": f"${{file:{secret}}}",
    }
    place = FileLocation(f"s3://{BUCKET}/{world.namespace}", options)
    written = ", ".join(f'{name}: "{value}"' for name, value in options.items())
    move_tiers(world, f'"s3a://{BUCKET}/{world.namespace}", options: {{{written}}}')
    return place


@pytest.fixture
def on_hdfs(world: World, hdfs: str) -> FileLocation:
    """The same, on HDFS."""
    place = FileLocation(f"{hdfs}/{world.namespace}")
    move_tiers(world, f'"{place}"')
    return place


def move_tiers(world: World, path: str) -> None:
    config, before = Path(world.config), f'path: "{world.home}/cold"'
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, f"path: {path}"))


def test_cold_tier_in_a_bucket_takes_rows_shows_them_and_gives_them_back(
    world: World, place: FileLocation, cold: ColdRoute, capfd: pytest.CaptureFixture[str]
) -> None:
    take_show_and_give_back(world, cold)
    assert SECRET_KEY not in "".join(capfd.readouterr())


@pytest.mark.long
def test_cold_tier_on_hdfs_takes_rows_shows_them_and_gives_them_back(
    world: World, on_hdfs: FileLocation, cold: ColdRoute
) -> None:
    take_show_and_give_back(world, cold)


def take_show_and_give_back(world: World, cold: ColdRoute) -> None:
    cold.demoted(*IDS)
    assert cold.warm() == set()
    assert listed(world) == IDS
    assert world.producer().cancel("cold", "b") == "recorded"
    assert world.command("get", "cold", "a", "--output", "json").json()["state"] == "cold"
    assert world.command("get", "cold", "b").code == 1
    cold.reach(hours=1)
    assert cold.hydrate().accepted == 1
    assert cold.warm() == {"a"}
    cold.reach()
    assert cold.hydrate().accepted == 2
    assert cold.warm() == {"a", "c", "d"}
    assert listed(world) == []


def test_journal_table_in_a_bucket_is_read_and_tidied_by_the_options_of_the_configuration(
    world: World, place: FileLocation
) -> None:
    table = place / "journal"
    for number, name in enumerate("ab"):
        add_batch(table, number, [name])
    JournalTable(table).begun(QUERY).complete(5)
    there = Stores.of_file(world.config).place(str(table))
    assert JournalTable(there).existing().complete_until_ms == 5
    done = world.command("spark", "tidy", str(table), "--output", "json")
    assert done.code == 0, done.err
    assert (done.json()["merged_files"], done.json()["into_files"]) == (2, 1)
    assert SECRET_KEY not in done.err + done.out


@pytest.mark.long
def test_page_of_a_verdict_is_written_to_a_bucket_by_the_options_of_the_configuration(
    world: World, place: FileLocation
) -> None:
    export = world.home / "amqp.jsonl"
    export.write_text('{"route": "amqp", "id": "strange", "at": 1000}')
    page = str(place / "verdict.html")
    given = {"routes": ["amqp"], "exports": [str(export)], "page": page}
    done = run_reconcile(world.spark, world.config, **given)
    assert done.page == page
    assert b"<html" in read_file(place / "verdict.html")


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_commands_of_spark_read_and_write_both_spellings_of_a_bucket(
    world: World, place: FileLocation, kafka_jars: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.spark.world.COMMAND_WITHIN_S", 300.0)  # a bucket has no rename
    jars = f"spark.jars={kafka_jars},{downloaded('spark-s3')}"
    source = f"s3a://{BUCKET}/{world.namespace}/in"
    rejects, table = str(place / "rejects"), str(place / "journal")
    write_rows(place)
    for code, *words in (
        (1, "schedule", "plain", source, "--rejects", rejects),  # one has no id
        (0, "journal", table),
    ):
        done = world.command("spark", *words, *AS_WORDS, "--spark", jars)
        assert done.code == code, done.err
        assert SECRET_KEY not in done.err + done.out
    check_written(world, place)
    assert JournalTable(Stores.of_file(world.config).place(table)).existing()


@pytest.mark.long
def test_jobs_of_spark_read_and_write_hdfs(world: World, on_hdfs: FileLocation) -> None:
    write_rows(on_hdfs)
    spark, to = world.spark, {"config": world.config}
    rejects, table = str(on_hdfs / "rejects"), str(on_hdfs / "journal")
    done = run_schedule(spark, [str(on_hdfs / "in")], route="plain", rejects=rejects, **to)
    assert (done.accepted, done.rejects) == (2, 1)  # one has no id
    run_journal(spark, table, **to)
    run_report(spark, str(on_hdfs / "report"), journal=table, **to)
    check_written(world, on_hdfs)
    assert b"<html" in read_file(on_hdfs / "report/report.html")


def write_rows(place: FileLocation) -> None:
    rows = {"id": ["near", "", "far"], "body": ["1", "2", "3"], "due_at": [LATER_MS] * 3}
    with open_output(place / "in/rows.parquet") as stream:
        pq.write_table(pa.table(rows), stream)


def check_written(world: World, place: FileLocation) -> None:
    """The store has what is sound, and the place the rest."""
    assert world.ids("plain") == {"near", "far"}
    files, path = open_filesystem(place / "rejects")
    assert pq.read_table(path, filesystem=files).num_rows == 1


def test_settings_of_spark_are_those_of_each_bucket(world: World, place: FileLocation) -> None:
    found = s3_settings(Stores.of(load_config(world.config)))
    of_bucket = f"fs.s3a.bucket.{BUCKET}"
    said = {name.removeprefix(of_bucket): text for name, text in found.items() if BUCKET in name}
    assert said == {
        ".endpoint": place.options["endpoint"],
        ".endpoint.region": "eu-west-1",
        ".path.style.access": "true",
        ".connection.ssl.enabled": "false",
        ".access.key": ACCESS_KEY,
        ".secret.key": SECRET_KEY,
        ".aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    assert found["fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"


def test_spark_needs_its_connector_for_places_on_s3_alone() -> None:
    assert is_s3(["/in", None, "s3a://bucket/in"])
    assert not is_s3(["/in", None, "hdfs://n/in", "table"])


@pytest.mark.long
def test_demote_to_a_bucket_that_is_killed_and_run_again_loses_nothing(
    cold: ColdRoute, place: FileLocation
) -> None:
    """Before the commit, which is a conditional put; other steps are the same as on a disk."""
    cold.schedule(*IDS)
    cold.demote_until("before the commit")
    cold.demote()
    assert cold.warm() == set()
    assert cold.ids() == IDS
    cold.reach()
    assert cold.hydrate().accepted == len(IDS)
    assert cold.warm() == set(IDS)


def test_place_in_a_bucket_of_the_configuration_has_its_options(
    world: World, place: FileLocation
) -> None:
    stores = Stores.of(load_config(world.config))
    assert stores.place(f"s3://{BUCKET}/report").options == place.options
    assert stores.place("/tmp/report").options == {}  # noqa: S108 - nothing is written


@pytest.mark.long
def test_tier_in_a_bucket_is_merged_and_swept(place: FileLocation) -> None:
    merge_and_sweep(place)


@pytest.mark.long
def test_tier_on_hdfs_is_merged_and_swept(on_hdfs: FileLocation) -> None:
    merge_and_sweep(on_hdfs)


def merge_and_sweep(place: FileLocation) -> None:
    log = ColdLog(place, "cold")
    due = 20_000 * 24 * HOUR_MS
    for number in range(FEW + 2):
        file = f"batch=B{number}/{range_folder(due, due)}/a.parquet"
        row = {"id": f"i{number}", "batch": "B", "generation": 1, "due_at_ms": due, "blob": b"\0"}
        write_table(log.root, file, pa.Table.from_pylist([row], arrow_schema(COLD)))
        if number > FEW:
            break  # killed before its commit
        log.commit(Commit(kind=SCHEDULED, batch=f"B{number}", at_ms=1, files=(file,)))
    later = 2**45  # after all that the server has just written
    assert compact(log, later) == CompactionSummary(files=FEW + 1)
    assert sweep(log, later) == SweepSummary(left=2)
    sweep(log, 2 * later)
    (file,) = log.state().files
    assert log.written("") == [file]
    tier = ColdTier(path=place.uri, options=place.options, horizon="7d")
    for number in (0, FEW):
        (found,) = read_cold_rows(tier, "cold", (f"i{number}",), ANY_TIME)
        assert found.due_at_ms == due
    assert [*read_cold_rows(tier, "cold", ("absent",), ANY_TIME)] == []


def test_get_where_the_bucket_is_missing_names_the_setting_and_no_secret(
    world: World, place: FileLocation
) -> None:
    config = Path(world.config)
    config.write_text(config.read_text().replace(f"s3a://{BUCKET}", "s3://no-such-bucket"))
    done = world.command("get", "cold", "a")
    assert done.code == 2
    assert "routes.cold.cold_tier.path: cannot be read: s3://no-such-bucket" in done.err
    assert SECRET_KEY not in done.err + done.out


def test_get_where_a_key_is_missing_names_it(world: World, place: FileLocation) -> None:
    (world.home / "secret").unlink()
    done = world.command("get", "cold", "a")
    assert done.code == 2
    assert "routes.cold.cold_tier.options.secret_access_key: file" in done.err
