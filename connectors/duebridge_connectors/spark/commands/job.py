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
from duebridge_connectors.spark.source.options import StoreOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RouteArgument = Annotated[str, typer.Argument(help="A route of the configuration.")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--spark", help="A Spark setting: NAME=VALUE, such as spark.master=local[4]."),
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(help="A column of the envelope as SQL over the input: NAME=EXPRESSION."),
]
WhereOption = Annotated[
    str | None, typer.Option(help="Only input rows that meet this SQL condition.")
]
KafkaReadOption = Annotated[
    list[str] | None, typer.Option(help="An option of Spark's Kafka source: NAME=VALUE.")
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
    str | None, typer.Option("--since", help="Only since then: a time ago (7d), or an instant.")
]
RateOption = Annotated[int | None, typer.Option(help="Rate limit over all tasks.")]


@contextmanager
def job_session(
    name: str, settings: Sequence[str] | None = None, *, has_kafka: bool = False
) -> Iterator["SparkSession"]:
    """Open the session of a job; raises `ConfigError` if Spark is not installed."""
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
    """Parse `NAME=VALUE` texts; raises `ConfigError`."""
    found = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not (sign and name.strip() and value.strip()):
            raise ConfigError(f"{option}: expected NAME=VALUE; got {text!r}")
        found[name.strip()] = value.strip()
    return found


def given_options(**options: Any) -> dict[str, Any]:
    """Return the options that were given; the jobs have the defaults of the others."""
    return {name: value for name, value in options.items() if value is not None}


def instant_ms(option: str, given: str | None, config: str) -> int | None:
    """Return an instant given as such, or as a time before the store's now; None if not given."""
    if given is None:
        return None
    planning = import_module("duebridge_connectors.spark.source.planning")
    address = planning.given_store(StoreOptions(config=config))
    return parse_ago(given, option, address.now_ms())


def progress_options(every: str | None) -> dict[str, Any]:
    """Return a callback that prints each batch of an endless job; others have their summary."""
    return {"on_batch": lambda batch: complain(str(batch))} if every else {}


def show_summary(summary: msgspec.Struct, output: Output) -> None:
    """Write the summary of a job: a JSON object, or a line for people."""
    if output is Output.JSON:
        write_json(summary)
    else:
        write(str(summary))
