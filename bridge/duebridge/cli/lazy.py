"""Command groups that import a command's module only when that command is called."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer._click.shell_completion import CompletionItem
from typer.core import TyperGroup

from duebridge.cli import INTERRUPTED, quiet_interrupts
from duebridge.cli.exits import BROKER, DONE, NO, STORE, USAGE

GROUP = "duebridge.commands"  # entry points: a typer.Typer each, by the name of the command

_MEANINGS = {
    DONE: "done",
    NO: "the answer is no",
    USAGE: "usage or configuration",
    STORE: "the store is unreachable or unfit",
    BROKER: "a broker is unreachable, or a target is missing",
    INTERRUPTED: "interrupted",
}


def manual(*examples: str, no: str = "", needs_store: bool = True, broker: bool = False) -> str:
    r"""Return the text below a command's help: its examples, then its exit codes.

    `no` says when the answer is no; without it the command never exits with 1. \b keeps the lines.
    """
    is_shown = {NO: bool(no), STORE: needs_store, BROKER: broker}
    codes = [code for code in _MEANINGS if is_shown.get(code, True)]
    meanings = {**_MEANINGS, NO: f"{_MEANINGS[NO]}: {no}"}
    return "\n\n".join(
        "\b\n" + "\n".join(lines)
        for lines in (
            [f"Example: {example}" for example in examples],
            ["Exit codes:", *(f"  {code:<3}  {meanings[code]}" for code in codes)],
        )
    )


class CommandSpec(NamedTuple):
    """A command that is not loaded yet.

    `target` is `module:attribute`, naming a function or a `typer.Typer`; `summary` is the line in
    the group's help; `epilog` comes from `manual`.
    """

    target: str
    summary: str
    epilog: str = ""

    def load(self, name: str) -> Any:
        """Import the target and return its command."""
        module, _, attribute = self.target.partition(":")
        with quiet_interrupts():
            target = getattr(import_module(module), attribute)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name)
            return typer.main.get_group(app).commands[name]
        app.command(name, epilog=self.epilog, short_help=self.summary)(_quiet(target))
        return typer.main.get_command(app)


def _quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Run a command with quiet interrupts, which it ends once it opens the store."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        with quiet_interrupts():
            command(*arguments, **options)

    return run


class PluginSpecs(Mapping[str, CommandSpec]):
    """Our own commands, then those of other distributions; asks for the latter only if it must."""

    def __init__(self, own: Mapping[str, CommandSpec]) -> None:
        self._own = own

    @cached_property
    def _plugins(self) -> dict[str, CommandSpec]:
        from importlib.metadata import entry_points

        return {
            point.name: CommandSpec(point.value, f"Commands of the {point.name} connector.")
            for point in sorted(entry_points(group=GROUP))
        }

    def __getitem__(self, name: str) -> CommandSpec:
        return self._own[name] if name in self._own else self._plugins[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._own, *self._plugins))

    def __len__(self) -> int:
        return len(self._own) + len(self._plugins)


class LazyCommands(Mapping[str, Any]):
    """Commands by name: iteration loads nothing, access loads the one command."""

    def __init__(self, specs: Mapping[str, CommandSpec]) -> None:
        self._specs = specs
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._specs[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


class LazyGroup(TyperGroup):
    """A group whose help and completion come from `specs`, without loading any command."""

    specs: ClassVar[Mapping[str, CommandSpec]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(self.specs)  # type: ignore[assignment]  # typer only reads it

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, spec.summary) for name, spec in self.specs.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and the options of the group, that begin like `incomplete`."""
        return [
            *(
                CompletionItem(name, help=spec.summary)
                for name, spec in self.specs.items()
                if name.startswith(incomplete)
            ),
            *super(TyperGroup, self).shell_complete(ctx, incomplete),
        ]
