"""Files in every kind of place: who may write, what is atomic, and what is never told."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import obstore
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.store import AzureStore
from pyarrow import table
from pyarrow.fs import AzureFileSystem, FileSelector

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.cold.commit_log import DEMOTED, REMOVED, ColdLog, Commit
from duebridge_connectors.spark.cold.parquet.files import write_table
from duebridge_connectors.spark.delta_table import opened_table
from duebridge_connectors.spark.files.location import FileLocation
from duebridge_connectors.spark.filesystem import (
    create_file,
    delta_options,
    naming_damage,
    open_filesystem,
    open_output,
    read_file,
    write_file,
)
from duebridge_connectors.spark.table.journal_table import JournalTable
from duebridge_connectors.spark.table.tidy_merge import merge_small_files
from tests.spark.object_servers import ACCESS_KEY, BUCKET, FORGETFUL, SECRET_KEY, S3Server
from tests.support.servers import free_port

WRITERS = 6
AWS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "DEFAULT_REGION", "ENDPOINT_URL")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AWS:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("S3_KEY", ACCESS_KEY)
    monkeypatch.setenv("S3_SECRET", SECRET_KEY)


@pytest.fixture(params=["file", "s3", "s3a", pytest.param("hdfs", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> FileLocation:
    """An empty directory."""
    if request.param == "file":
        return FileLocation(f"{tmp_path}/cold")
    if request.param == "hdfs":
        return FileLocation(f"{request.getfixturevalue('hdfs')}/{tmp_path.name}")
    server: S3Server = request.getfixturevalue("s3")
    return FileLocation(f"{request.param}://{BUCKET}/{tmp_path.name}", server.options())


def names(place: FileLocation) -> list[str]:
    files, path = open_filesystem(place)
    found = files.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(info.path[len(path) + 1 :] for info in found if info.is_file)


def test_write_replaces_what_is_there_and_leaves_nothing_else(place: FileLocation) -> None:
    for data in (b"first", b"second"):
        write_file(place / "a/b.json", data)
        assert read_file(place / "a/b.json") == data
    assert names(place) == ["a/b.json"]


def test_create_of_what_is_there_is_refused_and_changes_nothing(place: FileLocation) -> None:
    assert create_file(place / "a/b.json", b"first")
    assert create_file(place / "a/b.json", b"first")  # a put whose answer was lost is made again
    assert not create_file(place / "a/b.json", b"second")
    assert read_file(place / "a/b.json") == b"first"
    assert [name for name in names(place) if "_one_writer" not in name] == ["a/b.json"]


def test_create_by_several_at_once_lets_one_win_and_tells_the_others(place: FileLocation) -> None:
    together = Barrier(WRITERS)

    def create(number: int) -> bool:
        together.wait()
        return create_file(place / "commit.json", b"%d" % number)

    with ThreadPoolExecutor(WRITERS) as writers:
        won = [number for number, is_first in enumerate(writers.map(create, range(WRITERS)))
               if is_first]  # fmt: skip
    assert [b"%d" % number for number in won] == [read_file(place / "commit.json")]


def test_create_in_a_store_without_conditions_is_refused(s3: S3Server, tmp_path: Path) -> None:
    place = FileLocation(f"s3://{FORGETFUL}/{tmp_path.name}", s3.options())
    with pytest.raises(ConfigError, match="expected a store that refuses to create an object twic"):
        create_file(place / "commit.json", b"")
    assert "commit.json" not in "".join(names(place))


def test_table_in_a_store_without_conditions_is_read_and_never_written(
    s3: S3Server, tmp_path: Path
) -> None:
    place = FileLocation(f"s3://{FORGETFUL}/{tmp_path.name}", s3.options())
    with pytest.raises(ConfigError, match="expected a store that refuses to create an object twic"):
        JournalTable(place).begun("a query")
    write_deltalake(str(place), table({"id": ["a"]}), storage_options=delta_options(place))
    assert opened_table(place).version() == 0
    with pytest.raises(ConfigError, match="expected a store that refuses to create an object twic"):
        merge_small_files(place)
    assert opened_table(place).version() == 0


def test_output_of_a_large_file_reads_back(place: FileLocation) -> None:
    data = bytes(range(256)) * 50_000  # more than one part of an upload
    with open_output(place / "deep/er/large") as stream:
        stream.write(data)
    assert read_file(place / "deep/er/large") == data
    assert names(place) == ["deep/er/large"]


def test_missing_file_is_an_os_error(place: FileLocation) -> None:
    with pytest.raises(FileNotFoundError):
        read_file(place / "none")
    assert names(place / "none") == []


def test_delta_table_is_opened_by_the_same_options(place: FileLocation) -> None:
    uri, options = str(place / "table"), delta_options(place)
    write_deltalake(uri, table({"id": ["a", "b"]}), storage_options=options)
    write_deltalake(uri, table({"id": ["c"]}), storage_options=options, mode="append")
    read = DeltaTable(uri, storage_options=options).to_pyarrow_table()
    assert sorted(read["id"].to_pylist()) == ["a", "b", "c"]


def test_journal_table_is_made_and_read_in_every_place(place: FileLocation) -> None:
    table = JournalTable(place / "journal")
    table.begun("a query").complete(5)
    assert JournalTable(place / "journal").existing().complete_until_ms == 5
    with pytest.raises(ConfigError, match="expected a table that the job journal wrote; got none"):
        JournalTable(place / "another").existing()


def test_cold_tier_keeps_its_files_and_its_log_in_every_place(place: FileLocation) -> None:
    log, other = ColdLog(place, "cold"), ColdLog(place, "cold")
    file = "batch=B/part.parquet"
    write_table(log.root, file, table({"id": ["a", "b"]}))  # it reads back what it wrote
    assert log.written("batch=B") == [file]
    assert log.commit(Commit(kind=DEMOTED, batch="B", at_ms=1, rows=2, files=(file,)))
    assert [batch.batch for batch in other.state().unfinished] == ["B"]
    assert other.commit(Commit(kind=REMOVED, batch="B", at_ms=2, rows=2))
    assert not log.commit(Commit(kind=REMOVED, batch="B", at_ms=3, rows=2))
    assert [commit.at_ms for commit in log.commits()] == [1, 2]


def test_place_without_options_takes_the_variables_of_aws(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    place = f"s3://{BUCKET}/{tmp_path.name}/file"
    create_file(place, b"here")
    assert read_file(place) == b"here"
    assert DeltaTable.is_deltatable(place, delta_options(place)) is False


def test_place_carries_references_and_no_secret(s3: S3Server) -> None:
    place = FileLocation(f"s3://{BUCKET}/a", s3.options()) / "b"
    carried = pickle.dumps(place) + repr(place).encode() + str(place).encode()
    assert SECRET_KEY.encode() not in carried
    assert pickle.loads(pickle.dumps(place)) == place  # noqa: S301 - as a task gets it
    assert SECRET_KEY not in s3.said()


def test_missing_variable_is_named_before_anything_is_opened(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("S3_SECRET")
    place = FileLocation(f"s3://{BUCKET}/a", s3.options(), "routes.r.cold_tier.options")
    with pytest.raises(ConfigError) as caught:
        open_filesystem(place)
    expected = "routes.r.cold_tier.options.secret_access_key: variable S3_SECRET: not set"
    assert str(caught.value) == expected


def test_option_that_resolves_to_nonsense_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("S3_SECRET", "localhost:9000")
    with pytest.raises(ConfigError) as caught:
        open_filesystem(FileLocation("s3://bucket/a", {"endpoint": "${S3_SECRET}"}))
    assert (
        str(caught.value) == "options.endpoint: expected http[s]://HOST[:PORT]; got another value"
    )


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["account_key"], "c2VjcmV0"),
        (["sas_token"], "sv=2026-01-01&sig=c2VjcmV0"),
        (["client_id", "client_secret", "tenant_id"], "c2VjcmV0"),
    ],
)
def test_options_of_azure_are_taken_by_every_library(
    monkeypatch: pytest.MonkeyPatch, names: list[str], value: str
) -> None:
    monkeypatch.setenv("AZURE_VALUE", value)
    options = dict.fromkeys(names, "${AZURE_VALUE}")
    place = FileLocation("abfss://box@account.dfs.core.windows.net/a", options)
    found = delta_options(place)
    assert found["azure_storage_account_name"] == "account"
    assert [*found.values()].count(value) == len(names)
    AzureStore("box", config=cast(Any, found))
    AzureFileSystem("account", **place.settings())


@pytest.mark.parametrize(
    "uri", ["cold", "s3://bucket/a?endpoint_override=h", "ftp://h/a", "s3://u:p@bucket/a"]
)
def test_place_that_no_library_opens_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="a place of files: expected"):
        open_filesystem(uri)


@pytest.mark.long
def test_name_node_that_is_away_is_an_error_and_no_missing_file() -> None:
    place = FileLocation(f"hdfs://127.0.0.1:{free_port()}/cold")
    touches = (read_file, names, lambda place: create_file(place, b""))
    with ThreadPoolExecutor(len(touches)) as pool:  # each asks again for seconds
        for touched in [pool.submit(touch, place) for touch in touches]:
            with pytest.raises(OSError, match="refused"):
                touched.result()


def test_failure_of_a_store_is_an_os_error_without_a_secret(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*given: object, **options: object) -> None:
        raise obstore.exceptions.PermissionDeniedError("403:\n<Error>\n\nDebug source:\nGeneric {")

    monkeypatch.setattr(obstore, "put", absent)
    with pytest.raises(OSError, match=r"/a/c: cannot be written: 403: <Error>$"):
        write_file(FileLocation(f"s3://{BUCKET}/a", s3.options()) / "c", b"")


def test_file_that_its_store_does_not_give_is_to_be_restored_only_if_it_is_damaged() -> None:
    wanted = (
        "got: AWS Error SLOW_DOWN; nothing is lost: restore the file if it is damaged or missing"
    )
    with (
        pytest.raises(JobFailed, match=wanted),
        naming_damage("b/a.parquet", "the cold tier", "nothing is lost"),
    ):
        raise OSError("AWS Error\nSLOW_DOWN")
