"""`duebridge bench`: the cost of the bridge, beside the same client publishing alone."""

from collections.abc import Iterable
from enum import StrEnum
from itertools import chain, groupby
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from duebridge.bench.figures import FORMATS, SECTIONS, BenchRow, BenchSizes
from duebridge.cli import allow_interrupts
from duebridge.cli.output import Output, OutputOption, complain, write, write_json, write_table
from duebridge.cli.session import ConfigOption, load
from duebridge.errors import ConfigError

if TYPE_CHECKING:
    from duebridge.config.models import Config

SIZES = BenchSizes()


class KafkaClientChoice(StrEnum):
    """A Kafka client."""

    KAFKA_PYTHON = "kafka-python"
    LIBRDKAFKA = "librdkafka"


def bench(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(help="The store's URL, in place of a configuration.")
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(help="Kafka's bootstrap servers, in place of a configuration.")
    ] = None,
    rabbitmq: Annotated[
        str | None, typer.Option(help="RabbitMQ's URL, in place of a configuration.")
    ] = None,
    client: Annotated[
        KafkaClientChoice, typer.Option(help="The Kafka client, with --kafka.")
    ] = KafkaClientChoice.KAFKA_PYTHON,
    only: Annotated[
        str,
        typer.Option(help=f"Comma-separated sections: {', '.join(SECTIONS)}.", metavar="SECTIONS"),
    ] = ",".join(SECTIONS),
    count: Annotated[int, typer.Option(min=1, help="Messages per round.")] = SIZES.count,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each side.")] = SIZES.rounds,
    rates: Annotated[
        str,
        typer.Option(
            help="Comma-separated rates of lateness, in messages per second.", metavar="RATES"
        ),
    ] = ",".join(map(str, SIZES.rates)),
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds per round of lateness, and of idle.")
    ] = SIZES.seconds,
    pending: Annotated[
        int, typer.Option(min=1, help="Pending messages of memory.")
    ] = SIZES.pending,
    backlog: Annotated[
        int, typer.Option(min=1, help="Pending messages of backlog.")
    ] = SIZES.backlog,
    calls: Annotated[int, typer.Option(min=1, help="Calls per script.")] = SIZES.calls,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
) -> None:
    """Measure the bridge beside the same client publishing alone.

    It measures the store and every broker of the configuration, or those of --store, --kafka and
    --rabbitmq, in a namespace, topics and queues of its own, which it deletes. It prints every
    round, the two sides alternating, then the medians (round 0). CPU, calls and bytes are per
    message; trust ratios, CPU and counts before wall time. If others_calls is not 0, other clients
    used the store meanwhile, and its CPU includes theirs. The section durability needs none of
    them: it starts servers of its own. It puts full load on the servers: do not
    run it on a cluster in use.
    """
    from duebridge.bench.program import ON_ITS_OWN, measure, measure_alone
    from duebridge.bench.stage import BenchSetting
    from duebridge.config.broker_access import open_publishers
    from duebridge.telemetry.logs import configure_logs

    configure_logs()
    asked = _sections(only)
    sizes = BenchSizes(count, rounds, _rates(rates), seconds, pending, backlog, calls)
    rows = measure_alone(asked, sizes)
    if not set(asked) <= set(ON_ITS_OWN):
        settings = _config(context, config, store, kafka, rabbitmq, client)
        rows = chain(measure(BenchSetting(settings, open_publishers), asked, sizes), rows)
    allow_interrupts()  # scratch topics and namespaces are deleted at the end
    for (section, broker), some in groupby(rows, key=lambda row: (row.section, row.broker)):
        if output is Output.JSON:
            for row in some:
                write_json(as_json(row))
        else:
            _show(f"{section} {broker}".strip(), some)


def as_json(row: BenchRow) -> dict[str, Any]:
    """Return a row as one flat object."""
    fields = msgspec.to_builtins(row)
    figures = fields.pop("figures")
    return {"round": 0, **fields, **figures}


def _show(title: str, rows: Iterable[BenchRow]) -> None:
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


def _cells(row: BenchRow, names: list[str]) -> list[str]:
    return [
        format(row.figures[name], FORMATS[name]) if name in row.figures else "" for name in names
    ]


def _config(
    context: typer.Context,
    config: Any,
    store: str | None,
    kafka: str | None,
    rabbitmq: str | None,
    client: KafkaClientChoice,
) -> "Config":
    """Return the configuration of the flags, else that of the file."""
    if not (store or kafka or rabbitmq):
        return load(context, config)
    from duebridge.config.load import load_config_text

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
