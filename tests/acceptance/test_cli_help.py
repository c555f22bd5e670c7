"""Every command explains itself, and the shell completes what a person types."""

from collections.abc import Iterator

import pytest
import typer.main

from duebridge.cli.app import app
from tests.support.command import Command, embedded_command

PRINT_NO_DATA = {"run", "config schema"}  # logs, and what is JSON anyway


def commands(group: typer.main.TyperGroup, above: str = "") -> dict[str, bool]:
    """Return the words of every command, and whether it is a group of others."""
    found = {above: True}
    for name, command in group.commands.items():
        words = f"{above} {name}".strip()
        found |= commands(command, words) if hasattr(command, "commands") else {words: False}
    return found


COMMANDS = commands(typer.main.get_group(app))


@pytest.fixture(scope="module")
def duebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        yield command


@pytest.mark.parametrize("words", COMMANDS)
def test_help_of_every_command_has_an_example_and_exit_codes(
    duebridge: Command, words: str
) -> None:
    shown = duebridge(*words.split(), "--help")
    assert (shown.code, shown.err) == (0, "")
    out = shown.out.replace("--config duebridge.yaml ", "")
    assert f"Example: duebridge {words}".strip() in out
    assert "Exit codes:\n" in out
    assert "\x1b" not in out


def completed(duebridge: Command, *words: str) -> list[str]:
    """Return what bash would offer for the last word."""
    line = ["duebridge", *words]
    done = duebridge(
        _DUEBRIDGE_COMPLETE="complete_bash", COMP_WORDS=" ".join(line), COMP_CWORD=str(len(words))
    )
    assert (done.code, done.err) == (0, "")
    return done.out.split()


def test_completion_offers_commands_routes_and_reasons(duebridge: Command) -> None:
    (duebridge.home / "other.yaml").write_text(duebridge.file.read_text().replace("invo", "cho"))
    assert completed(duebridge, "resch") == ["reschedule"]
    assert completed(duebridge, "send", "rem") == ["reminders"]
    assert completed(duebridge, "ls", "") == ["reminders", "invoices"]
    assert completed(duebridge, "--config", "other.yaml", "events", "c") == ["choices"]
    assert completed(duebridge, "dead", "ls", "--config", "other.yaml", "c") == ["choices"]
    assert completed(duebridge, "dead", "ls", "reminders", "--reason", "un") == [
        "unroutable", "unauthorized",
    ]  # fmt: skip


def test_completion_without_a_configuration_offers_nothing_and_is_quiet(duebridge: Command) -> None:
    assert completed(duebridge, "--config", "none.yaml", "send", "r") == []


def test_completion_script_of_a_shell_is_printed(duebridge: Command) -> None:
    shown = duebridge(_DUEBRIDGE_COMPLETE="source_bash")
    assert (shown.code, shown.err) == (0, "")
    assert "_DUEBRIDGE_COMPLETE=complete_bash" in shown.out
    options = duebridge("--help").out
    assert "--install-completion" in options
    assert "--show-completion" in options
