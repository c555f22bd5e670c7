"""Which dead envelopes a command means: by their ids, by a filter, or all of a route."""

from typing import Annotated

import typer

from duebridge.admin.dead import ANY_DEAD, DeadFilter, reason_number
from duebridge.admin.operator import Operator
from duebridge.cli.completion import complete_reason
from duebridge.cli.instants import parse_ago
from duebridge.errors import EnvelopeError

IdsArgument = Annotated[list[str] | None, typer.Argument(help="Their ids.", show_default=False)]
ReasonOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Dead for this reason, such as too_large; may be repeated.",
        autocompletion=complete_reason,
    ),
]
ErrorClassOption = Annotated[
    str | None, typer.Option(help="Whose last error is of this class: its whole name.")
]
ErrorOption = Annotated[
    str | None, typer.Option(help="Whose last error has this text in its class or message.")
]
BeforeOption = Annotated[
    str | None,
    typer.Option(help="Last failed then or earlier: a time ago (2h), or an instant as of --at."),
]
AfterOption = Annotated[
    str | None, typer.Option(help="Last failed then or later; as --before.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead envelopes of the route.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing: say how many are meant, and the first.")
]
RateOption = Annotated[
    str | None, typer.Option(help="No faster than this, such as 50/s; else as fast as it goes.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask, as is done for a filter on a terminal.")
]


def read_filter(
    operator: Operator,
    reason: list[str] | None,
    error_class: str | None,
    error: str | None,
    before: str | None,
    after: str | None,
) -> DeadFilter:
    """Return the conditions; raises `EnvelopeError`. Times ago are of the store's clock."""
    now_ms = operator.now_ms() if before or after else 0
    return DeadFilter(
        reasons=frozenset(reason_number(each) for each in reason or ()),
        error_class=error_class or "",
        error_text=error or "",
        after_ms=None if after is None else parse_ago(after, "--after", now_ms),
        before_ms=None if before is None else parse_ago(before, "--before", now_ms),
    )


def check_choice(ids: list[str], wanted: DeadFilter, is_all: bool) -> None:
    """Raise `EnvelopeError` unless it is ids, a filter, or all: nothing goes by mistake."""
    given = [
        name
        for name, is_given in (("ids", ids), ("a filter", wanted != ANY_DEAD), ("--all", is_all))
        if is_given
    ]
    if len(given) != 1:
        got = " and ".join(given) or "nothing"
        raise EnvelopeError(f"expected ids, a filter such as --reason, or --all; got {got}")
