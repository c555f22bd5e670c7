"""Selects dead envelopes by the options of `duebridge dead`: by id, by a filter, or all."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from duebridge.admin.dead import ANY_DEAD, DeadFilter, list_dead, reason_number
from duebridge.cli.output import Output, OutputOption
from duebridge.cli.session import ConfigOption
from duebridge.errors import EnvelopeError
from duebridge.instants import InstantOrOffset, parse_ago
from duebridge.ports.publisher import Reason

if TYPE_CHECKING:
    from duebridge.admin.operator import Operator
    from duebridge.receipt import KnownState


def complete_reason(incomplete: str) -> list[str]:
    """Return the reasons that begin like this."""
    return [reason.word for reason in Reason if reason.word.startswith(incomplete)]


IdsArgument = Annotated[
    list[str] | None, typer.Argument(help="The envelopes' ids.", show_default=False)
]
ReasonOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Only envelopes dead for this reason, such as too_large; may be repeated.",
        autocompletion=complete_reason,
    ),
]
ErrorClassOption = Annotated[
    str | None, typer.Option(help="Only envelopes whose last error class is exactly this.")
]
ErrorOption = Annotated[
    str | None,
    typer.Option(help="Only envelopes whose last error has this text in its class or message."),
]
BeforeOption = Annotated[
    str | None,
    typer.Option(help="Last failed at or before: a duration ago (2h), or an instant as for --at."),
]
AfterOption = Annotated[
    str | None, typer.Option(help="Last failed at or after; as --before.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead envelopes of the route.")]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Change nothing: print the number selected, and the first."),
]
RateOption = Annotated[
    str | None, typer.Option(help="The highest rate, such as 50/s; unlimited by default.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before changing what a filter selects.")
]


@dataclass(frozen=True)
class FilterOptions:
    """The options that filter dead envelopes."""

    reason: ReasonOption = None
    error_class: ErrorClassOption = None
    error: ErrorOption = None
    before: BeforeOption = None
    after: AfterOption = None

    def read(self) -> "DeadConditions":
        """Return the conditions, before the store is asked; raises `EnvelopeError`."""
        return DeadConditions(
            DeadFilter(
                reasons=frozenset(reason_number(word) for word in self.reason or ()),
                error_class=self.error_class or "",
                error_text=self.error or "",
            ),
            after=None if self.after is None else parse_ago(self.after, "--after"),
            before=None if self.before is None else parse_ago(self.before, "--before"),
        )


class DeadConditions(NamedTuple):
    """A filter of dead envelopes whose instants may depend on the store's clock."""

    others: DeadFilter
    after: InstantOrOffset | None
    before: InstantOrOffset | None

    def filter(self, operator: "Operator") -> DeadFilter:
        """Return the filter by the store's clock now."""
        if self.after is None and self.before is None:
            return self.others
        return self._at(operator.now_ms())

    def filter_until_now(self, operator: "Operator") -> DeadFilter:
        """Return the filter without what dies later, such as while a person is asked."""
        now_ms = operator.now_ms()
        found = self._at(now_ms)
        return found._replace(
            before_ms=now_ms if found.before_ms is None else min(now_ms, found.before_ms)
        )

    def _at(self, now_ms: int) -> DeadFilter:
        return self.others._replace(
            after_ms=self.after and self.after.at_ms(now_ms),
            before_ms=self.before and self.before.at_ms(now_ms),
        )


ANY_CONDITION = DeadConditions(ANY_DEAD, None, None)


@dataclass(frozen=True)
class SettleOptions(FilterOptions):
    """The options that `replay` and `drop` have in common."""

    ids: IdsArgument = None
    is_all: AllOption = False
    rate: RateOption = None
    dry_run: DryRunOption = False
    yes: YesOption = False
    output: OutputOption = Output.TABLE
    config: ConfigOption = None

    def read(self) -> DeadConditions:
        """Return the conditions; raises `EnvelopeError` unless it is ids, a filter, or --all."""
        found = super().read()
        choices = {"ids": self.ids, "a filter": found != ANY_CONDITION, "--all": self.is_all}
        given = [name for name, is_given in choices.items() if is_given]
        if len(given) != 1:
            got = " and ".join(given) or "nothing"
            raise EnvelopeError(f"expected ids, a filter such as --reason, or --all; got {got}")
        return found


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its one dataclass parameter as options of their own."""
    signature = inspect.signature(command)
    (group,) = (p for p in signature.parameters.values() if is_dataclass(p.annotation))
    options: Any = group.annotation
    names = [field.name for field in fields(options)]

    @wraps(command)
    def run(**given: Any) -> None:
        command(**{group.name: options(**{name: given.pop(name) for name in names})}, **given)

    own = [p for p in signature.parameters.values() if p is not group]
    expanded = inspect.signature(options).parameters.values()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *expanded)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


class DeadSelection(NamedTuple):
    """The selected dead envelopes of a route: those of `ids`, or without ids those of `wanted`.

    `wanted` ends with an instant, so that each reading of it selects the same, or fewer.
    """

    operator: "Operator"
    route: str
    ids: Sequence[str]
    wanted: DeadFilter

    def all_ids(self) -> Iterator[str]:
        """Yield the selected ids."""
        if self.ids:
            yield from dict.fromkeys(self.ids)
            return
        for listed in list_dead(self.operator, self.route, self.wanted):
            yield listed.entry.id

    def dead_ids(self) -> Iterator[str]:
        """Yield the selected ids whose envelopes are dead now."""
        for one_id in self.all_ids():
            if not self.ids or self.state(one_id) == "dead":
                yield one_id

    def state(self, one_id: str) -> "KnownState | Literal['unknown']":
        """Return the envelope's state, "unknown" if the store does not have it."""
        known = self.operator.show(self.route, one_id)
        return "unknown" if known is None else known.state
