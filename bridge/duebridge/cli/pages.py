"""Lists that go on: how many, from where, and the cursor that the next page begins with."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated

import typer

from duebridge.admin.listing import Place
from duebridge.cli.output import Output, complain, write_json, write_table
from duebridge.receipt import Known

LimitOption = Annotated[int, typer.Option(min=1, help="At most so many envelopes.")]
CursorOption = Annotated[
    str | None, typer.Option(help="Go on where the page ended that printed it.", show_default=False)
]


class Page:
    """At most `limit` of the places, and the cursor behind them where there are more."""

    def __init__(self, route: str, places: Iterable[Place], limit: int) -> None:
        found = list(islice(places, limit + 1))
        self.envelopes = [Known.of(route, place.entry) for place in found[:limit]]
        self.cursor = str(found[limit - 1].position) if len(found) > limit else ""

    def show(self, columns: Sequence[str], rows: Iterator[Sequence[str]], output: Output) -> None:
        """Write it; the cursor goes last, for people to standard error."""
        show_envelopes(self.envelopes, columns, rows, output)
        if self.cursor and output is Output.JSON:
            write_json({"cursor": self.cursor})
        elif self.cursor:
            complain(f"there are more: --cursor {self.cursor}")


def show_envelopes(
    envelopes: Sequence[Known],
    columns: Sequence[str],
    rows: Iterator[Sequence[str]],
    output: Output,
) -> None:
    """Write envelopes: their rows for people, else an object a line."""
    if output is not Output.JSON:
        write_table(columns, rows)
        return
    for known in envelopes:
        write_json(known)


def error_cell(known: Known) -> str:
    """Return class and message of the last error for people, a dash for none."""
    return ": ".join(part for part in (known.error_class, known.error_message) if part) or "-"
