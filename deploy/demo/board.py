"""The live view: where the envelopes of each route are, and what has just happened.

On a terminal a table that renews itself; elsewhere a plain line every few seconds.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from timetable import TARGETS

LIVE_EVERY_S, LINE_EVERY_S = 0.25, 3.0
LINES_OF_NEWS = 6


class Counts(NamedTuple):
    """How many envelopes of a route are where; the last two as the readers found them."""

    pending: int
    ready: int
    unack: int
    retry: int
    delivered: int
    dead: int

    def __str__(self) -> str:
        return " ".join(f"{name} {count}" for name, count in self._asdict().items() if count)


class Board:
    """Shows what `counts` and `clock` say; may be told events by any thread."""

    def __init__(
        self,
        console: Console,
        clock: Callable[[], str],
        counts: Callable[[], Mapping[str, Counts]],
    ) -> None:
        self._console = console
        self._clock = clock
        self._counts = counts
        self._milestones: list[Text] = []
        self._news: deque[Text] = deque(maxlen=LINES_OF_NEWS)
        self._over = threading.Event()

    def tell(self, event: str) -> None:
        """Add a line to the news, which scroll away and are too small for the plain form."""
        self._news.append(Text(f"{self._clock()}  {event}"))

    def announce(self, event: str, *, style: str = "bold") -> None:
        """Add a line that stays in view."""
        line = Text(f"{self._clock()}  {event}", style=style)
        self._milestones.append(line)
        if not self._console.is_terminal:
            self._console.print(line)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the view up to date until the end of the block, and show it once more then."""
        show = self._show_table if self._console.is_terminal else self._print_lines
        thread = threading.Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _show_table(self) -> None:
        with Live(self._view(), console=self._console, auto_refresh=False) as live:
            while not self._over.wait(LIVE_EVERY_S):
                live.update(self._view(), refresh=True)
            live.update(self._view(), refresh=True)

    def _print_lines(self) -> None:
        while not self._over.wait(LINE_EVERY_S):
            self._print_line()
        self._print_line()

    def _print_line(self) -> None:
        parts = [f"{route}: {counts}" for route, counts in self._counts().items()]
        self._console.print(f"{self._clock()}  {' | '.join(parts)}", soft_wrap=True)

    def _view(self) -> Group:
        news = [*self._news]
        blank = [Text()] * (LINES_OF_NEWS - len(news))
        return Group(self._table(), *self._milestones, *news, *blank)

    def _table(self) -> Table:
        title = f"New York, {self._clock()}"
        table = Table(title=title, box=SIMPLE_HEAD, title_style="bold", title_justify="left")
        table.add_column("route")
        table.add_column("target")
        for name in Counts._fields:
            table.add_column(name, justify="right")
        for route, counts in self._counts().items():
            table.add_row(
                route, TARGETS[route], *(str(count) if count else "·" for count in counts)
            )
        return table
