"""The sizes of a benchmark, and its measurements as rows: one per round, and the median."""

import statistics
from collections.abc import Iterable, Sequence

import msgspec

SECTIONS = (
    "bridge",
    "intakes",
    "lateness",
    "memory",
    "backlog",
    "idle",
    "scripts",
    "durability",
)

# Every figure, in the order of the table's columns. The name has the unit; CPU, calls and bytes are
# per message.
FORMATS = {
    "messages_per_s": ".0f",
    "worker_cpu_us": ".1f",
    "store_cpu_us": ".1f",
    "store_calls": ".4f",
    "p50_ms": ".1f",
    "p99_ms": ".1f",
    "early": ".0f",
    "pending": ".0f",
    "memory_bytes": ".0f",
    "calls": ".0f",
    "p999_ms": ".2f",
    "most_ms": ".2f",
    "calls_per_s": ".2f",
    "others_calls": ".0f",
    "throughput_ratio": ".2f",
    "cpu_ratio": ".2f",
}


class BenchSizes(msgspec.Struct, frozen=True):
    """The sizes of a measurement."""

    count: int = 20_000
    rounds: int = 3
    rates: tuple[int, ...] = (500, 1000)
    seconds: float = 5.0
    pending: int = 100_000
    backlog: int = 1_000_000
    calls: int = 200


class BenchRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of one round; `round` 0 is the median of all rounds.

    `what` names the measured side: `client alone`, `schedule`, `bridge`.
    """

    section: str
    what: str
    figures: dict[str, float]
    broker: str = ""
    round: int = 0


def median(rows: Sequence[BenchRow]) -> BenchRow:
    """Return the median of rows that differ only in their round."""
    first = rows[0]
    figures = {name: statistics.median(row.figures[name] for row in rows) for name in first.figures}
    return msgspec.structs.replace(first, figures=figures, round=0)


def medians(rows: Iterable[BenchRow]) -> list[BenchRow]:
    """Return the median of each `what`, in the order of their first rows."""
    by_what: dict[str, list[BenchRow]] = {}
    for row in rows:
        by_what.setdefault(row.what, []).append(row)
    return [median(some) for some in by_what.values()]


def ratios(rows: Sequence[BenchRow], what: str, base: str) -> dict[str, float]:
    """Return the medians of the rounds' ratios of a side to the base; more is better."""

    def of(side: str, name: str) -> list[float]:
        return [row.figures[name] for row in rows if row.what == side]

    def over(name: str, above: str, below: str) -> float:
        pairs = zip(of(above, name), of(below, name), strict=True)
        return statistics.median(a / b for a, b in pairs)

    return {
        "throughput_ratio": over("messages_per_s", what, base),
        "cpu_ratio": over("worker_cpu_us", base, what),
    }


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value that at least `share` of the values do not exceed."""
    if not sorted_values:
        return float("nan")
    place = min(len(sorted_values) - 1, max(0, -int(-share * len(sorted_values) // 1) - 1))
    return sorted_values[place]
