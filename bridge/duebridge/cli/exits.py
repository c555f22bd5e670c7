"""Turns the error of a command into an exit code and one line.

| code | means |
|---|---|
| 0 | done |
| 1 | the answer is no: unknown id, conflict, refused line, a check or a job failed |
| 2 | usage or configuration |
| 3 | the store is unreachable or unfit |
| 4 | a broker is unreachable, or a target is missing |
| 5 | the answer is not known: something is missing, which is named |
| 70 | a defect of duebridge itself, or of another's connector, which is named |
| 130 | interrupted |
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import typer

from duebridge.cli.output import OutputClosed, complain, discard_output
from duebridge.errors import (
    ConfigError,
    ConfigFileError,
    EnvelopeError,
    Indeterminate,
    JobFailed,
    StoreError,
    StoreUnavailable,
    before_that,
    place_of,
    shown,
)
from duebridge.ports.discovery import third_party_of
from duebridge.ports.publisher import BrokerUnavailable

DONE, NO, USAGE, STORE, BROKER, UNKNOWN, DEFECT = 0, 1, 2, 3, 4, 5, 70

_CODES: dict[type[Exception], int] = {
    typer.TyperException: USAGE,
    ConfigError: USAGE,
    EnvelopeError: USAGE,
    UnicodeEncodeError: USAGE,
    OSError: USAGE,
    StoreError: STORE,
    JobFailed: NO,
    BrokerUnavailable: BROKER,
}
_QUOTE = "'"
_EXPECTED = {  # of values on the command line, by pydantic's type of the error
    "int_parsing": "a whole number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}


def run_guarded(app: typer.Typer) -> int:
    """Return the exit code of a command line; an error is one line, never a stack trace."""
    try:
        code = app(prog_name="duebridge", standalone_mode=False)
        return code if isinstance(code, int) else DONE
    except OutputClosed:  # the reader has seen enough
        discard_output()
        return DONE
    except Exception as error:
        for line in _lines(error):
            complain(line)
        if isinstance(error, OSError):  # a full disk would fail once more at exit
            discard_output()
        return exit_code(error)


def exit_code(error: Exception) -> int:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), DEFECT)


def finish(*, is_yes: bool | None) -> None:
    """End the command with the code for yes, no, or None for not known."""
    raise typer.Exit(UNKNOWN if is_yes is None else DONE if is_yes else NO)


@contextmanager
def telling(progress: Callable[[], str]) -> Iterator[None]:
    """Say how far it came beside an error of the store or of the output, and at Ctrl-C."""
    try:
        yield
    except StoreError as error:
        raise type(error)(f"{error}; {progress()}") from error
    except OSError as error:  # a full disk
        raise OSError(error.errno, f"{error.strerror}; {progress()}", error.filename) from error
    except KeyboardInterrupt:
        complain(f"duebridge: interrupted; {progress()}")
        raise


def telling_what_is_done(done: Callable[[], str]) -> AbstractContextManager[None]:
    """Say what was done before it beside such an end."""
    return telling(lambda: before_that(done()))


def _lines(error: Exception) -> list[str]:
    if isinstance(error, ConfigFileError):
        return str(error).splitlines()
    if isinstance(error, ConfigError):
        return [f"duebridge: {line}" for line in str(error).splitlines()]
    return [f"duebridge: {_line(error)}"]


def _line(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        return _usage_line(error)
    if isinstance(error, UnicodeEncodeError):
        return f"expected text in UTF-8; got {error.object!r}"
    if isinstance(error, OSError):
        said = " ".join(str(error).split())  # all that libraries of object stores give
        why = error.strerror or said or type(error).__name__
        return f"{error.filename}: {why}" if error.filename else why
    if exit_code(error) == DEFECT:
        return _defect_line(error)
    if isinstance(error, Indeterminate):
        return f"{error}; repeat the command" + (" with this id" if len(error.ids) == 1 else "")
    if isinstance(error, StoreUnavailable) and len(error.ids) == 1:
        return f"{error}; whether it was done is unknown: repeat the command with this id"
    return str(error)


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "duebridge"
    return f"{_usage_message(error)} (see `{command} --help`)"


def _usage_message(error: typer.TyperException) -> str:
    if close := getattr(error, "possibilities", None):
        return f"{error.message}, did you mean {close[0]}?"
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):  # pydantic's, of a value
        return _bad_value(error, cause.errors()[0])
    said, _, close = error.format_message().partition(". Did you mean '")
    return f"{said}, did you mean {close.partition(_QUOTE)[0]}?" if close else said.rstrip(".")


def _bad_value(error: typer.TyperException, details: Mapping[str, Any]) -> str:
    """Rephrase a usage error in the form of every other error: expected, got."""
    _, _, choices = details["msg"].rstrip(".").partition(" is not one of ")
    known = _EXPECTED.get(details["type"], "another value").format(**details.get("ctx", {}))
    expected = f"one of {choices.replace(_QUOTE, '')}" if choices else known
    name = vars(error)["param"].opts[0]
    return f"{name}: expected {expected}; got {shown(details['input'])}"


def _defect_line(error: Exception) -> str:
    """Return the place of a defect, without its message, which could quote a secret."""
    what = f"{type(error).__name__} at {place_of(error)}"
    if connector := third_party_of(error):
        return f"a defect in the connector {connector}: {what}; please report it to its authors"
    return f"a defect in duebridge: {what}; please report it"
