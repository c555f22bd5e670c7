"""Tells which cancels, moves, ends and demotes of an id are of its lives in the period.

    before │ the period               │ after
    A  C   │ A     demoted  A  moved  │ C      A  moved  C
           │ └── the turns of its own lives ──┘

What became of an earlier or a later life of the same id neither ends nor moves these. Journal and
receipts are ordered each by its own clock, the store's and the callers'.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from duebridge_connectors.spark.transforms import facts as what
from duebridge_connectors.spark.transforms.facts import WITHIN_A_MS, only

CLOCKS_DIFFER_MS = 60_000  # those of callers and the store, at most
_CLOCKS_DIFFER = CLOCKS_DIFFER_MS * WITHIN_A_MS
_TOLD = (what.CALLED_OFF, what.RECORDED)
_TURNS = (what.CANCELLED, what.EXCUSED, what.ENDED, what.DUE, what.DEMOTED, *_TOLD)
_JOURNALLED = (what.ACCEPTED, what.REPLACED)
_BEGINS = (*_JOURNALLED, what.RECEIPT)
_AGGREGATED = (
    *("turns", "last_begun", "journal_begin", "journal_last", "first_accept", "last_accept"),
    *("receipt_begin", "last_receipt", "next_begin"),
)


def turn_aggregates() -> list[Column]:
    """Return what `with_own_turns` needs of an id's facts."""
    begun, turn = F.struct("place", "due_ms"), F.struct("place", "what", "due_ms")
    is_begun = what.is_any(*_BEGINS) & F.col("place").isNotNull()
    found = {
        "turns": F.collect_list(F.when(what.is_any(*_TURNS), turn)),
        "last_begun": F.max(F.when(is_begun, begun)),
        "journal_begin": F.min(only("place", *_JOURNALLED)),
        "journal_last": F.max(only("place", *_JOURNALLED)),
        "first_accept": F.min(only("place", what.ACCEPTED)),
        "last_accept": F.max(only("place", what.ACCEPTED)),
        "receipt_begin": F.min(only("place", what.RECEIPT)),
        "last_receipt": F.max(only("place", what.RECEIPT)),
        "next_begin": F.min(only("place", what.LATER)),
    }
    return [column.alias(name) for name, column in found.items()]


def with_own_turns(rows: DataFrame) -> DataFrame:
    """Add what became of the id's lives in the period, instead of the aggregates.

    `returned` counts the accepts of cold rows that came back; `was_cold` tells of any, `is_cold` of
    one that has not come back within the period. `called_off` counts the cancels that are the
    receipts' last word on the id: it `is_told` if one certainly ended the id's life, and
    `is_maybe_told` where the id's story must say so.
    """
    begin = F.coalesce("journal_begin", "receipt_begin")
    told = _own(*_TOLD, begin=_told_from())
    return rows.withColumns(
        {
            "last_due": _last_due(),
            "own_cancels": F.size(_own(what.CANCELLED, begin=begin)),
            "own_excuses": F.size(_own(what.EXCUSED, begin=begin)),
            "own_ended": F.size(_own(what.ENDED, begin=begin, slack=WITHIN_A_MS)),
            "called_off": F.size(told),
            "is_told": F.exists(told, _is_certain),
            "is_maybe_told": F.exists(told, lambda turn: ~_is_certain(turn)),
            "returned": F.size(_demotes(F.col("first_accept"), F.col("last_accept"))),
            "was_cold": F.size(_demotes(F.lit(None), F.col("journal_last"))) > 0,
            "is_cold": F.size(_demotes(F.col("journal_last"), F.col("next_begin"))) > 0,
        }
    ).drop(*_AGGREGATED)


def _own(*kinds: int, begin: Column, slack: int = 0) -> Column:
    """Return the turns of these kinds from an instant on, up to the next life after the period.

    `slack`: a message says of a life's begin which millisecond, and no number within it.
    """

    def is_own(turn: Column) -> Column:
        place = _place(turn)
        since = F.coalesce(place >= begin, F.lit(True))
        return turn["what"].isin(*kinds) & since & _is_before_next(place - slack)

    return F.filter("turns", is_own)


def _demotes(after: Column, before: Column) -> Column:
    """Return the demotes between two places of the journal; null for no bound."""

    def is_between(turn: Column) -> Column:
        place = turn["place"]
        since = F.coalesce(place > after, F.lit(True))
        until = F.coalesce(place < before, F.lit(True))
        return (turn["what"] == what.DEMOTED) & since & until

    return F.filter("turns", is_between)


def _last_due() -> Column:
    moves = F.filter(
        "turns",
        lambda turn: (
            (turn["what"] == what.DUE) & turn["place"].isNotNull() & _is_before_next(turn["place"])
        ),
    )
    names = ("place", "due_ms")
    dues = F.transform(moves, lambda turn: F.struct(*(turn[name].alias(name) for name in names)))
    return F.greatest("last_begun", F.array_max(dues))["due_ms"]


def _told_from() -> Column:
    """Return the place from which on a cancel is the receipts' last word on the id."""
    known = F.nullif("last_receipt", F.lit(0))
    return F.coalesce(known, F.col("journal_begin") - _CLOCKS_DIFFER)


def _is_certain(turn: Column) -> Column:
    """Tell whether a cancel that receipts tell of ended this life, whatever the clocks.

    What was only recorded may have been of an id that was not there.
    """
    place = _place(turn)
    since_receipt = place > F.nullif("last_receipt", F.lit(0))
    apart = F.when(since_receipt, -_CLOCKS_DIFFER).otherwise(_CLOCKS_DIFFER)
    since_begin = place - F.col("journal_begin") >= apart
    is_later = F.coalesce(since_receipt, F.lit(True)) & F.coalesce(since_begin, F.lit(True))
    return (turn["what"] == what.CALLED_OFF) & is_later


def _place(turn: Column) -> Column:
    """Return the place of a turn; null if nobody knows it."""
    return F.nullif(turn["place"], F.lit(0))


def _is_before_next(place: Column) -> Column:
    return F.coalesce(place < F.col("next_begin"), F.lit(True))
