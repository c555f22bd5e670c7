"""Turns the error of a command into an exit code and one line.

| code | means |
|---|---|
| 0 | done |
| 1 | the answer is no: unknown id, conflict, refused line, a check or a job failed |
| 2 | usage or configuration |
| 3 | the store is unreachable or unfit |
| 4 | a broker is unreachable, or a target is missing |
| 70 | a defect of duebridge itself |
| 130 | interrupted |
"""

import traceback
from pathlib import Path

import typer

from duebridge.cli.output import OutputClosed, complain, discard_output
from duebridge.errors import ConfigError, EnvelopeError, JobFailed, StoreError, StoreUnavailable
from duebridge.ports.publisher import BrokerUnavailable

DONE, NO, USAGE, STORE, BROKER, DEFECT, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130

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


def finish(*, is_yes: bool) -> None:
    """End the command with the code for yes or no."""
    raise typer.Exit(DONE if is_yes else NO)


def _lines(error: Exception) -> list[str]:
    if isinstance(error, ConfigError):  # a line for each mistake in the file
        return str(error).splitlines()
    return [f"duebridge: {_line(error)}"]


def _line(error: Exception) -> str:
    if isinstance(error, typer.TyperException):
        return _usage_line(error)
    if isinstance(error, UnicodeEncodeError):
        return f"expected text in UTF-8; got {error.object!r}"
    if isinstance(error, OSError):
        why = error.strerror or type(error).__name__
        return f"{error.filename}: {why}" if error.filename else why
    if exit_code(error) == DEFECT:
        return _defect_line(error)
    if isinstance(error, StoreUnavailable) and len(error.ids) == 1:
        return f"{error}; whether it was done is unknown: repeat the command with id {error.ids[0]}"
    return str(error)


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "duebridge"
    return f"{_usage_message(error)} (see `{command} --help`)"


def _usage_message(error: typer.TyperException) -> str:
    close = getattr(error, "possibilities", None)
    if close:
        return f"{error.message}, did you mean {close[0]}?"
    return error.format_message().replace(". Did you mean", ", did you mean").rstrip(".")


def _defect_line(error: Exception) -> str:
    """Return where the defect is, without its message, which could quote a secret."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"a defect in duebridge: {type(error).__name__} at {where}; please report it"
