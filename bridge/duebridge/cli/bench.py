"""`duebridge bench`: what the bridge costs here, beside the same client publishing alone."""

from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any

import msgspec
import typer

from duebridge.bench.figures import FORMATS, Row
from duebridge.bench.program import SECTIONS, Sizes, measure
from duebridge.bench.stage import Setting
from duebridge.cli.output import Output, OutputOption, complain, write, write_json, write_table
from duebridge.cli.publishers import open_publishers
from duebridge.cli.session import ConfigOption, load
from duebridge.config.load import load_config_text
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.telemetry.logs import configure_logs

SIZES = Sizes()


class Client(StrEnum):
    """A Kafka client."""

    KAFKA_PYTHON = "kafka-python"
    LIBRDKAFKA = "librdkafka"


def bench(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(help="The store's url, instead of a configuration.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(help="Kafka's bootstrap servers, instead of a configuration.")
    ] = None,
    rabbitmq: Annotated[
        str | None, typer.Option(help="RabbitMQ's url, instead of a configuration.")
    ] = None,
    client: Annotated[Client, typer.Option(help="With --kafka.")] = Client.KAFKA_PYTHON,
    only: Annotated[
        str, typer.Option(help=f"Sections, by commas: {', '.join(SECTIONS)}.", metavar="SECTIONS")
    ] = ",".join(SECTIONS),
    count: Annotated[int, typer.Option(min=1, help="Messages a round.")] = SIZES.count,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each.")] = SIZES.rounds,
    rates: Annotated[
        str, typer.Option(help="Messages a second of lateness, by commas.", metavar="RATES")
    ] = ",".join(map(str, SIZES.rates)),
    seconds: Annotated[
        float, typer.Option(min=0.1, help="A round of lateness; of idle.")
    ] = SIZES.seconds,
    pending: Annotated[int, typer.Option(min=1, help="Pending for memory.")] = SIZES.pending,
    backlog: Annotated[int, typer.Option(min=1, help="Pending for backlog.")] = SIZES.backlog,
    calls: Annotated[int, typer.Option(min=1, help="Of each script.")] = SIZES.calls,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Measure the bridge beside the same client publishing alone.

    It measures the store and every broker of the configuration, or those of --store, --kafka and
    --rabbitmq, in a namespace, topics and queues of its own, which it deletes. Each round is
    shown, the two sides in turn, then the medians (round 0). CPU, calls and bytes are of one
    message; trust ratios, CPU and counts before wall time. Where others_calls is not 0, others
    used the store meanwhile, and its CPU is theirs too. It loads what it measures: not for a
    cluster in use.
    """
    configure_logs()
    settings = _config(context, config, store, kafka, rabbitmq, client)
    sizes = Sizes(count, rounds, _rates(rates), seconds, pending, backlog, calls)
    rows = measure(Setting(settings, open_publishers), _sections(only), sizes)
    for (section, broker), some in groupby(rows, key=lambda row: (row.section, row.broker)):
        if output is Output.JSON:
            for row in some:
                write_json(as_json(row))
        else:
            _show(f"{section} {broker}".strip(), some)


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as one flat object."""
    fields = msgspec.to_builtins(row)
    figures = fields.pop("figures")
    return {"round": 0, **fields, **figures}


def _show(title: str, rows: "Any") -> None:
    shown = []
    for row in rows:
        shown.append(row)
        complain(f"{title}: {row.what}, round {row.round}")
    names = [name for name in FORMATS if any(name in row.figures for row in shown)]
    write("")
    write_table(
        (title, "round", *names),
        [(row.what, str(row.round or "-"), *_cells(row, names)) for row in shown],
    )


def _cells(row: Row, names: list[str]) -> list[str]:
    return [
        format(row.figures[name], FORMATS[name]) if name in row.figures else "" for name in names
    ]


def _config(
    context: typer.Context,
    config: Any,
    store: str | None,
    kafka: str | None,
    rabbitmq: str | None,
    client: Client,
) -> Config:
    """Return the configuration that the flags describe, or else that of the file."""
    if not (store or kafka or rabbitmq):
        return load(context, config)
    brokers: dict[str, Any] = {}
    if kafka:
        servers = kafka.split(",")
        brokers["kafka"] = {"type": "kafka", "bootstrap_servers": servers, "client": client.value}
    if rabbitmq:
        brokers["rabbitmq"] = {"type": "rabbitmq", "url": rabbitmq}
    given = {"store": {"url": store}} if store else {}
    written = {"version": 1, **given, "brokers": brokers, "routes": {}}
    return load_config_text(msgspec.json.encode(written).decode(), "the flags")


def _sections(only: str) -> list[str]:
    asked = [name.strip() for name in only.split(",")]
    for name in asked:
        if name not in SECTIONS:
            raise ConfigError(f"--only: expected any of {', '.join(SECTIONS)}; got {name!r}")
    return asked


def _rates(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise ConfigError(f"--rates: expected whole numbers above 0, by commas; got {text!r}")
    return tuple(int(part) for part in parts)
