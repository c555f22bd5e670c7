"""What was measured, as rows: one a round, and the median of the rounds."""

import statistics
from collections.abc import Iterable, Sequence

import msgspec

# Every figure there is, in the order of the table's columns. The name tells the unit; CPU, calls
# and bytes are of one message.
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


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of one round; `round` 0 is for what is of all rounds.

    `what` says what was measured: `client alone`, `schedule`, `bridge`.
    """

    section: str
    what: str
    figures: dict[str, float]
    broker: str = ""
    round: int = 0


def median(rows: Sequence[Row]) -> Row:
    """Return the median of rows that differ only in their round."""
    first = rows[0]
    figures = {
        name: statistics.median(each.figures[name] for each in rows) for name in first.figures
    }
    return msgspec.structs.replace(first, figures=figures, round=0)


def medians(rows: Iterable[Row]) -> list[Row]:
    """Return a median for each `what`, in the order in which they first came."""
    by_what: dict[str, list[Row]] = {}
    for row in rows:
        by_what.setdefault(row.what, []).append(row)
    return [median(each) for each in by_what.values()]


def ratios(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of ratios, each of two values of the same round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value that at least `share` of the values do not exceed."""
    if not sorted_values:
        return float("nan")
    place = min(len(sorted_values) - 1, max(0, -int(-share * len(sorted_values) // 1) - 1))
    return sorted_values[place]
