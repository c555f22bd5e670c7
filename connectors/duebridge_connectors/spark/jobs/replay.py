"""The job `replay`: schedules dead letters of a Kafka topic to their routes again.

    topic, up to its present end ─▶ dead letters ─▶ selection ─▶ counted: the dry run
                                                             └─▶ by route: write

The topic keeps its records. The store remembers the ids of replayed dead letters, so running the
job again changes nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.admin.dead import reason_number
from duebridge.config.load import load_config
from duebridge.config.models import Config
from duebridge.durations import parse_duration_ms
from duebridge.errors import ConfigError, unknown_name
from duebridge_connectors.spark.kafka_source import (
    COMMITTED,
    end_of,
    kafka_options,
    read_records,
    topic_of,
)
from duebridge_connectors.spark.rows.schema import check_columns
from duebridge_connectors.spark.source.dataframes import check_write_options, write_envelopes
from duebridge_connectors.spark.source.loader import Summary
from duebridge_connectors.spark.transforms.letters import (
    READY,
    own_target,
    parse_dead_letters,
    replay_envelopes,
    with_judged_targets,
)

REMEMBER = "7d"  # Kafka's default retention
MAX_REPLAYS = 3
_RESERVED = frozenset({"id"})


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters to select, and how they become envelopes."""

    topic: str
    broker: str | None = None
    """A broker of the configuration; by default that of the dead_letter targets of this topic."""
    reasons: Sequence[str] = ()
    """Values of `x-dlq-reason`; all by default."""
    routes: Sequence[str] = ()
    """Values of `x-dlq-route`; all by default."""
    where: str | None = None
    columns: Mapping[str, str] = {}
    """Repaired columns: SQL by the writer's names."""
    delay: str = "0s"
    spread: str = "0s"
    """The period after `delay` over which the hash of the id spreads the due instants."""
    max_replays: int = MAX_REPLAYS
    read_options: Mapping[str, str] = {}
    """Options of Spark's Kafka source."""


class LetterCount(msgspec.Struct, frozen=True):
    """The number of dead letters of a route, a reason and a status."""

    route: str | None
    reason: str | None
    status: str
    count: int


class ReplaySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The selected dead letters, and the counts of the write; none in a dry run."""

    topic: str
    is_dry_run: bool
    letters: list[LetterCount]
    rows: list[Summary]

    @property
    def ready(self) -> int:
        """How many can be replayed."""
        return sum(group.count for group in self.letters if group.status == READY)

    @property
    def gone(self) -> int:
        """How many Kafka's retention removed between count and write."""
        return 0 if self.is_dry_run else self.ready - sum(summary.rows for summary in self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether every selected dead letter is scheduled."""
        is_refused = any(summary.rejects or summary.skipped for summary in self.rows)
        return not (self.is_dry_run or self.gone or is_refused) and all(
            group.status == READY for group in self.letters
        )

    def __str__(self) -> str:
        lines = [f"topic {self.topic}: {sum(group.count for group in self.letters):,} dead letters"]
        lines += [
            f"  {group.count:>9,}  {group.status:<12}  route {group.route}, {group.reason}"
            for group in self.letters
        ]
        if self.is_dry_run:
            lines.append(f"would replay {self.ready:,}; nothing was changed; --yes does it")
        if self.gone:
            lines.append(
                f"  {self.gone:>9,}  gone          cut by Kafka before they could be read again"
            )
        return "\n".join(lines + [str(summary) for summary in self.rows])


def run_replay(
    spark: SparkSession, replay: Replay, *, is_dry_run: bool = True, **write_options: str | int
) -> ReplaySummary:
    """Count the selected dead letters and, unless it is a dry run, schedule them.

    `write_options` are the data source's (`config` at least; the routes are the letters' own).
    Raises `ConfigError`, `EnvelopeError` and `BrokerUnavailable` before anything is scheduled.
    """
    config = load_config(str(write_options["config"]))
    _check(replay, config)
    check_write_options(route=replay.topic, **write_options)  # in a dry run, too
    letters = select_letters(_letters(spark, replay, config), replay)
    groups = count_letters(letters)
    routes = sorted({group.route for group in groups if group.status == READY and group.route})
    by_route = {route: _envelopes(letters, replay, config, route) for route in routes}
    for envelopes in by_route.values():  # all are checked before the first is written
        check_columns(envelopes.schema)
    options = {"remember": REMEMBER, **write_options}
    rows = [
        write_envelopes(envelopes, route=route, **options)
        for route, envelopes in ({} if is_dry_run else by_route).items()
    ]
    return ReplaySummary(topic=replay.topic, is_dry_run=is_dry_run, letters=groups, rows=rows)


def select_letters(letters: DataFrame, replay: Replay) -> DataFrame:
    """Return the dead letters that meet every given condition."""
    for name, wanted in (("reason", replay.reasons), ("route", replay.routes)):
        if wanted:
            letters = letters.where(F.col(name).isin(list(wanted)))
    return letters if replay.where is None else letters.where(replay.where)


def count_letters(letters: DataFrame) -> list[LetterCount]:
    """Return the counts by route, reason and status, largest first."""
    kinds = letters.groupBy("route", "reason", "status").count()
    return [
        LetterCount(*row) for row in kinds.orderBy(F.desc("count"), *kinds.columns[:3]).collect()
    ]


def broker_of_letters(config: Config, topic: str) -> str:
    """Return the broker of the dead-letter targets with this topic; raises `ConfigError`."""
    dead = [route.dead_letter for route in config.routes.values() if route.dead_letter]
    brokers = {target.broker for target in dead if target.topic == topic}
    if len(brokers) != 1:
        got = ", ".join(sorted(brokers)) or "none"
        raise ConfigError(
            f"topic {topic}: expected one broker whose routes name it as dead_letter; got {got}:"
            " name the broker"
        )
    return brokers.pop()


def _check(replay: Replay, config: Config) -> None:
    for reason in replay.reasons:
        reason_number(reason)
    for route in replay.routes:
        if route not in config.routes:
            fault = unknown_name("one of the configuration", route, config.routes)
            raise ConfigError(f"route: {fault}")
    if taken := sorted(_RESERVED & set(replay.columns)):
        raise ConfigError(f"column {taken[0]}: set by the job, so that nothing is sent twice")
    if replay.max_replays < 1:
        raise ConfigError(f"max replays: expected 1 or more; got {replay.max_replays}")
    for name, text in (("delay", replay.delay), ("spread", replay.spread)):
        parse_duration_ms(text, name)


def _letters(spark: SparkSession, replay: Replay, config: Config) -> DataFrame:
    options = kafka_options(config, replay.broker or broker_of_letters(config, replay.topic))
    topic = topic_of(spark, options, replay.topic)
    wanted = {
        **options,
        **COMMITTED,
        "subscribe": replay.topic,
        "startingOffsets": "earliest",
        "endingOffsets": end_of(spark, options, topic),  # without letters that arrive meanwhile
        **replay.read_options,
    }
    records = read_records(spark, spark.read, wanted)
    letters = parse_dead_letters(records, sorted(config.routes), replay.max_replays)
    if "target" in replay.columns:
        return letters
    return with_judged_targets(letters, config.routes)


def _envelopes(letters: DataFrame, replay: Replay, config: Config, route: str) -> DataFrame:
    return replay_envelopes(
        letters.where((F.col("status") == READY) & (F.col("route") == route)),
        replay.columns,
        delay_ms=parse_duration_ms(replay.delay, "delay"),
        spread_ms=parse_duration_ms(replay.spread, "spread"),
        target=own_target(config.routes[route]),
    )
