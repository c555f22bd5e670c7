"""The table of exit codes, and what a defect of our own may say."""

import errno
import inspect

import pytest
import typer

from duebridge import errors
from duebridge.cli.exits import exit_code, run_guarded
from duebridge.errors import BridgeError, ConfigError, EnvelopeError, JobFailed, StoreError
from duebridge.ports.publisher import BrokerUnavailable


def app_that_raises(error: Exception) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (EnvelopeError, 2), (StoreError, 3), (BrokerUnavailable, 4), (JobFailed, 1)],
)
def test_exit_code_of_an_error_is_its_class_and_of_every_subclass(
    kind: type[Exception], code: int
) -> None:
    for each in (kind, *kind.__subclasses__()):
        assert exit_code(each.__new__(each, "why")) == code


def test_exit_code_of_every_error_of_the_product_is_known() -> None:
    defined = [each for _, each in inspect.getmembers(errors, inspect.isclass)]
    assert {exit_code(each("why")) for each in defined if each is not BridgeError} == {1, 2, 3}


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StoreError("two\nlines"), 3, "duebridge: two\\nlines"),
        (BrokerUnavailable("no answer"), 4, "duebridge: no answer"),
        (OSError(errno.ENOSPC, "No space left", "out.txt"), 2, "duebridge: out.txt: No space left"),
    ],
)
def test_run_guarded_error_is_one_line_on_stderr(
    error: Exception,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["duebridge"])
    assert run_guarded(app_that_raises(error)) == code
    assert capsys.readouterr() == ("", f"{line}\n")


def test_run_guarded_defect_names_its_place_and_quotes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["duebridge"])
    assert run_guarded(app_that_raises(KeyError("canary"))) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "KeyError at test_cli_exits.py:" in err
    assert "canary" not in err
