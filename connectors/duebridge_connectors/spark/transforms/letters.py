"""Dead letters of a Kafka topic: parsed from records, and turned into envelopes again."""

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge.config.models import Route
from duebridge.envelope import Target
from duebridge.scheduling.limits import is_glob, permits
from duebridge_connectors.spark.transforms.envelopes import forwarded_headers, with_header

REPLAYS = "x-replays"
"""Header with the number of replays, which ends a loop."""
ORIGIN = "x-replay-of"
"""Header with the id of the first envelope."""

READY, LOOPED, DAMAGED, ROUTELESS = "ready", "looped", "damaged", "no_route"
MOVED, BARRED = "other_broker", "not_allowed"
_LIFE = ("x-dlq-route", "x-message-id", "x-scheduled-at", "x-attempt")
_TEXTS = {
    "route": "x-dlq-route",
    "reason": "x-dlq-reason",
    "error_class": "x-dlq-error-class",
    "error_message": "x-dlq-error-message",
    "target": "x-dlq-target",
    "message_id": "x-message-id",
}
_INSTANTS = {"first_failed_at": "x-dlq-first-failed-at", "last_failed_at": "x-dlq-last-failed-at"}
_ID_DIGITS = 24
_HEADERS = "array<struct<key: string, value: binary>>"


def parse_dead_letters(records: DataFrame, routes: Sequence[str], max_replays: int) -> DataFrame:
    """Return Kafka records (`includeHeaders`) with their headers as columns, for SQL.

    `status` is `ready`; `looped` after `max_replays` replays; `no_route` for a route other than
    these; `damaged` without the headers of a complete dead letter, as of a record that no worker
    could read.
    """
    rows = with_header(records)
    header = F.col("header")
    texts = {name: header[of] for name, of in _TEXTS.items()}
    instants = {
        name: F.timestamp_millis(header[of].try_cast("bigint")) for name, of in _INSTANTS.items()
    }
    replays = F.when(header[REPLAYS].isNull(), 0).otherwise(header[REPLAYS].try_cast("int"))
    rows = rows.withColumns({**texts, **instants, "replays": replays})
    is_whole = F.col("replays") >= 0
    for name in _LIFE:
        is_whole = is_whole & header[name].isNotNull()
    return rows.withColumn(
        "status",
        F.when(F.coalesce(~is_whole, F.lit(True)), DAMAGED)
        .when(~F.col("route").isin(list(routes)), ROUTELESS)
        .when(F.col("replays") >= max_replays, LOOPED)
        .otherwise(READY),
    )


def replay_envelopes(
    letters: DataFrame,
    columns: Mapping[str, str],
    *,
    delay_ms: int = 0,
    spread_ms: int = 0,
    target: Column | None = None,
) -> DataFrame:
    """Return dead letters as the writer's columns, due after `delay_ms` over `spread_ms`.

    The id derives from the life that ended: its route, id, instant of scheduling and attempt. So
    a dead letter that is in the topic twice becomes one envelope. `columns`
    are SQL over the columns of `dead_letters`, by the writer's names.
    """
    rows = letters.withColumn("replay_id", _replay_id())
    place = F.pmod(F.xxhash64("replay_id"), F.lit(spread_ms + 1)) + F.lit(delay_ms)
    repairs = {name: F.expr(text) for name, text in columns.items()}
    others = forwarded_headers(repairs.pop("headers", F.col("headers")), REPLAYS, ORIGIN)
    made = {
        "id": F.col("replay_id"),
        "body": F.col("value"),
        "key": F.col("key"),
        "headers": F.concat(F.coalesce(others, F.array().cast(_HEADERS)), _our_headers()),
        "delay": F.concat(place.cast("string"), F.lit("ms")),
        **({} if target is None else {"target": target}),
        **repairs,
    }
    return rows.select(*(column.alias(name) for name, column in made.items()))


def own_target(route: Route) -> Column | None:
    """Return an envelope's own target, null if it was the route's.

    It is read from the dead letter. None for a route that permits no other target.
    """
    if not route.allow_targets:
        return None
    parts = (column.alias(field) for field, column in _target_fields(route).items())
    given = F.struct(F.lit(route.target.broker).alias("broker"), *parts)
    return F.when(F.col("target") != str(route.target), given)


def with_judged_targets(letters: DataFrame, routes: Mapping[str, Route]) -> DataFrame:
    """Return dead letters with another status than `ready` where their own target forbids replay.

    `other_broker`: it is of a broker that the route has left. `damaged`: it cannot be told from its
    text; `eu/billing/k2` has the one exchange that the configuration names, else it is unclear.
    `not_allowed`: `allow_targets` does not permit it, as that of the route itself before a change.
    """
    status = F.col("status")
    for name, route in routes.items():
        if route.allow_targets:
            is_own = (F.col("route") == name) & (F.col("target") != str(route.target))
            is_judged = is_own & (F.col("status") == READY)
            status = F.when(is_judged, _judged_target(route)).otherwise(status)
    return letters.withColumn("status", status)


def _judged_target(route: Route) -> Column:
    may_have = F.udf(partial(_permits, route), "boolean")
    of_broker = F.col("target").startswith(f"{route.target.broker}:")
    return (
        F.when(~of_broker, MOVED)
        .when(~F.col("target").rlike(_target_pattern(route)), DAMAGED)
        .when(~may_have(*_target_fields(route).values()), BARRED)
        .otherwise(READY)
    )


def _permits(route: Route, *texts: str) -> bool:
    fields = dict(zip(_field_names(route), texts, strict=True))
    return permits(route, Target(route.target.broker, **fields))


def _field_names(route: Route) -> tuple[str, ...]:
    return ("topic",) if route.target.topic is not None else ("exchange", "routing_key")


def _target_fields(route: Route) -> dict[str, Column]:
    pattern = _target_pattern(route)
    return {
        field: F.regexp_extract("target", pattern, place)
        for place, field in enumerate(_field_names(route), 1)
    }


def _target_pattern(route: Route) -> str:
    """Return a pattern of a target's text (Java's), with a group for each field.

    Where exchange and key are more than two parts, it matches a text that begins with one exchange
    of the configuration alone.
    """
    if route.target.topic is not None:
        return "(?s)^[^:]+:(.*)$"
    names = {target.exchange or "" for target in (route.target, *route.allow_targets)}
    ways = ["[^/]*(?=/[^/]*$)"]
    if not any(map(is_glob, names)):
        for name in names:
            others = "".join(rf"(?!\Q{other}\E/)" for other in names - {name})
            ways.append(rf"{others}\Q{name}\E(?=/)")
    return rf"(?s)^[^:]+:({'|'.join(ways)})/(.*)$"


def _replay_id() -> Column:
    header = F.col("header")
    life = F.concat_ws("\n", *(header[name] for name in _LIFE))
    return F.concat(F.lit("replay-"), F.substring(F.sha2(life, 256), 1, _ID_DIGITS))


def _our_headers() -> Column:
    replays = (F.col("replays") + 1).cast("string")
    origin = F.coalesce(F.col("header")[ORIGIN], F.col("message_id"))
    pairs = {REPLAYS: replays, ORIGIN: origin}.items()
    return F.array(*(F.struct(F.lit(name), value.cast("binary")) for name, value in pairs)).cast(
        _HEADERS
    )
