"""Any configuration loads or is refused by file and line, soon, and shows no secret."""

import re
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import duebridge_connectors.kafka  # noqa: F401 - before any test imports kafka, whose import warns
from duebridge.cli.publishers import open_publishers
from duebridge.config.load import load_config, read_config_text, resolved_store_url
from duebridge.config.models import Config
from duebridge.config.render import rendered_config
from duebridge.errors import ConfigError
from duebridge.store.connection import open_connection
from tests.fuzz.budget import drawn, fuzz
from tests.fuzz.configurations import (
    LITERAL,
    PLAIN,
    PLAIN_VARIABLE,
    SECRET,
    VARIABLE,
    Document,
    documents,
)

WITHIN_S = 5.0  # of the processor: however busy the machine is
NO_SERVER = ("redis://", "rediss://", "unix://")  # nobody connects before the first call


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("configurations")
    (home / "secret").write_text(f"{SECRET}\n")
    return home


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    monkeypatch.setenv(PLAIN_VARIABLE, PLAIN)


@fuzz(1.0)
@given(data=st.data())
def test_configuration_loads_or_is_refused_by_its_place_without_a_secret(
    data: st.DataObject, home: Path
) -> None:
    document: Document = data.draw(documents(home / "secret"))
    drawn["configurations"] += 1
    path = home / "fuzz.yaml"
    path.write_bytes(document.data)
    begun_at = time.process_time()
    try:
        config = load_config(path)
    except ConfigError as error:
        check_places(str(error), str(path))
        shown = traceback_of(error)
    else:
        text = read_config_text(path)
        shown = f"{rendered_config(text, str(path))} {said_of_use(config)}"
        if document.is_in_place:  # else a secret may be the name of a topic, which is no secret
            check_hides(repr(config), SECRET, LITERAL)
    assert time.process_time() - begun_at < WITHIN_S
    check_hides(shown, SECRET, PLAIN, *([LITERAL] if document.is_in_place else []))


def check_hides(shown: str, *secrets: str) -> None:
    assert [each for each in secrets if each in shown] == [], shown


def said_of_use(config: Config) -> str:
    """What opening everything says, as far as that reaches no network."""
    said = ""
    with ExitStack() as stack:
        try:
            if (url := resolved_store_url(config)).startswith(NO_SERVER):
                stack.callback(open_connection(url).close)
        except ConfigError as error:
            said += traceback_of(error)
        try:
            open_publishers(config, stack)
        except ConfigError as error:
            said += traceback_of(error)
    return said


def traceback_of(error: Exception) -> str:
    """All that Python shows of an error and of what it came from."""
    return "".join(traceback.format_exception(error))


def check_places(message: str, name: str) -> None:
    """Every line has file, line and column, but for one about the whole file."""
    place = re.compile(re.escape(name) + r"(:\d+:\d+ \S|: expected at most 1 MiB$)")
    assert [line for line in message.split("\n") if not place.match(line)] == []
