"""What the commands of jobs share: option types, the Spark session, and the summary."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from duebridge.cli.output import STDERR, Output, complain, is_terminal, write, write_json
from duebridge.cli.session import config_path
from duebridge.config.load import load_config
from duebridge.errors import ConfigError
from duebridge.instants import parse_ago
from duebridge.scheduling.route_scheduler import find_route
from duebridge_connectors.spark.files.hadoop import is_s3, s3_settings, set_in_session
from duebridge_connectors.spark.files.location import Stores
from duebridge_connectors.spark.source.options import StoreOptions, WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RouteArgument = Annotated[str, typer.Argument(help="A route of the configuration.")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--spark", help="A Spark setting: NAME=VALUE, such as spark.master=local[4]."),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column", help="A column of the envelope as SQL over the input: NAME=EXPRESSION."
    ),
]
WhereOption = Annotated[
    str | None, typer.Option(help="Only input rows that meet this SQL condition.")
]
KafkaReadOption = Annotated[
    list[str] | None, typer.Option("--read", help="An option of Spark's Kafka source: NAME=VALUE.")
]
RejectsOption = Annotated[
    str | None, typer.Option(help="Directory for Parquet files of the refused rows.")
]
MaxRejectsOption = Annotated[int | None, typer.Option(help="Fail if more rows are refused.")]
OnConflictOption = Annotated[
    str | None, typer.Option(help="For a known id with other content: refuse, or replace.")
]
RememberOption = Annotated[
    str | None,
    typer.Option(help="How long an id is remembered after its envelope's end; by default 24h."),
]
RoutesOption = Annotated[
    list[str] | None, typer.Option("--route", help="A route, repeatable; by default all.")
]
JournalTableOption = Annotated[
    str | None,
    typer.Option(
        "--journal", help="Table written by the job journal; by default the store's own journal."
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Start of the period: a time ago (7d), or an instant."),
]
RateOption = Annotated[int | None, typer.Option(help="Rate limit over all tasks.")]


@contextmanager
def job_session(
    name: str,
    settings: Sequence[str] | None = None,
    *,
    has_kafka: bool = False,
    has_delta: bool = False,
    config: str | None = None,
    route: str | None = None,
    places: Iterable[str | None] = (),
) -> Iterator["SparkSession"]:
    """Open the session of a job; raises `ConfigError` if Spark is not installed.

    Raises `UnknownRoute` before Spark starts, which takes seconds. Spark opens `places` on S3 as
    the cold tiers of the configuration open their buckets.
    """
    module = imported("session")
    known = None if config is None else load_config(config)
    if known is not None and route is not None:
        find_route(known, route)
    more = parse_pairs("--spark", settings)
    needed = {"has_kafka": has_kafka, "has_delta": has_delta, "has_s3": is_s3(places)}
    hadoop = s3_settings(Stores.of(known)) if known is not None and needed["has_s3"] else {}
    opened = module.opened_session(name, is_watched=is_terminal(STDERR), **needed, more=more)
    with opened as session:
        set_in_session(session, hadoop)
        yield session


def imported(name: str) -> Any:
    """Return a module of this connector; raises `ConfigError` if what it needs is not installed."""
    try:
        return import_module(f"duebridge_connectors.spark.{name}")
    except ImportError as error:
        remedy = "type: pip install 'duebridge[spark]'"
        missing = f"expected the Python package {error.name}, which is not installed"
        raise ConfigError(f"spark: {missing}; {remedy}") from error


def parse_pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Parse `NAME=VALUE` texts; raises `ConfigError`."""
    found = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise ConfigError(f"{option}: expected NAME=VALUE; got {text!r}")
        found[name.strip()] = value.strip()
    return found


_OF_COMMANDS = ("context", "settings", "output")
_PAIRS = {"columns": "--column", "read_options": "--read"}


def given_options(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a command's parameters: options of the data source's write, and all others.

    Both lack what was not given: the jobs have the defaults. Raises `ConfigError`.
    """
    found = {
        name: parse_pairs(_PAIRS[name], value) if name in _PAIRS else value
        for name, value in parameters.items()
        if name not in _OF_COMMANDS and value is not None
    }
    found["config"] = str(config_path(parameters["context"], parameters["config"]))
    write = {name: found.pop(name) for name in WriteOptions.__struct_fields__ if name in found}
    return write, found


def with_instants(wanted: Mapping[str, Any], config: str) -> dict[str, Any]:
    """Return options with `since` and `until`, instants or times ago, as epoch ms."""
    planning = import_module("duebridge_connectors.spark.source.planning")
    found = dict(wanted)
    for name in ("since", "until"):
        if name in found:
            moment = parse_ago(found.pop(name), f"--{name}")
            now_ms = planning.given_store(StoreOptions(config=config)).now_ms()
            found[f"{name}_ms"] = moment.at_ms(now_ms)
    return found


def progress_options(every: str | None) -> dict[str, Any]:
    """Return a callback that prints each batch of an endless job; others have their summary."""
    return {"on_batch": lambda batch: complain(str(batch))} if every else {}


def show_summary(summary: msgspec.Struct, output: Output) -> None:
    """Write the summary of a job: a JSON object, or a line for people."""
    if output is Output.JSON:
        write_json(summary)
    else:
        write(str(summary))
