"""What the commands of jobs share: option types, the Spark session, and the summary."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from duebridge.cli.instants import parse_ago
from duebridge.cli.output import STDERR, Output, complain, is_terminal, write, write_json
from duebridge.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RouteArgument = Annotated[str, typer.Argument(help="A route of the configuration.")]
SettingOption = Annotated[
    list[str] | None, typer.Option("--spark", help="A setting of Spark, such as spark.master=...")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(help="A column of the envelope, and the SQL it is made by: NAME=EXPRESSION."),
]
KafkaReadOption = Annotated[
    list[str] | None, typer.Option(help="An option of Spark's Kafka source: NAME=VALUE.")
]
RejectsOption = Annotated[
    str | None, typer.Option(help="A directory for Parquet files of the refused rows.")
]
MaxRejectsOption = Annotated[
    int | None, typer.Option(help="Fail when more rows than these are refused.")
]
OnConflictOption = Annotated[
    str | None, typer.Option(help="For a known id with other content: refuse, or replace.")
]
RememberOption = Annotated[
    str | None, typer.Option(help="So long after its end an id is known; by default 24h.")
]
RateOption = Annotated[int | None, typer.Option(help="At most so many, over all tasks.")]


@contextmanager
def job_session(
    name: str, settings: Sequence[str] | None = None, *, has_kafka: bool = False
) -> Iterator["SparkSession"]:
    """Give the session of a job; raises `ConfigError` where Spark is not installed."""
    try:
        module = import_module("duebridge_connectors.spark.session")
    except ImportError as error:
        remedy = "type: pip install 'duebridge[spark]'"
        missing = f"expected the Python package {error.name}, which is not installed"
        raise ConfigError(f"spark: {missing}; {remedy}") from error
    more = parse_pairs("--spark", settings)
    opened = module.opened_session(
        name, is_watched=is_terminal(STDERR), has_kafka=has_kafka, more=more
    )
    with opened as session:
        yield session


def parse_pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return `NAME=VALUE` texts by their names; raises `ConfigError`."""
    found = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise ConfigError(f"{option}: expected NAME=VALUE; got {text!r}")
        found[name.strip()] = value.strip()
    return found


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that a person gave; the others have defaults of their own."""
    return {name: value for name, value in options.items() if value is not None}


def instant_ms(option: str, given: str | None, config: str) -> int | None:
    """Return an instant, or one so long before the store's own time; None where none is given."""
    if given is None:
        return None
    place = import_module("duebridge_connectors.spark.source.planning")
    where = import_module("duebridge_connectors.spark.source.options").Where(config=config)
    return parse_ago(given, option, place.place_of(where, place.config_of(where)).now_ms())


def progress_options(every: str | None) -> dict[str, Any]:
    """Return how a job that goes on tells of its batches; one that ends has its summary."""
    return {"on_batch": lambda batch: complain(str(batch))} if every else {}


def show_summary(summary: msgspec.Struct, output: Output) -> None:
    """Write what a job did: one object, or its line for people."""
    if output is Output.JSON:
        write_json(summary)
    else:
        write(str(summary))
