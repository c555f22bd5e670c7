"""A store's url that is wrong is refused before anything connects, and none of it is shown."""

import pytest

from duebridge.config.store_url import url_fault
from duebridge.errors import ConfigError
from duebridge.store.connection import open_connection
from tests.unit.config_text import WHOLE, loaded, refusal


@pytest.mark.parametrize(
    "url",
    [
        "redis://:p%40ss%2Fw%23rd@h:1/0",
        "rediss://u:x@h/0?ssl_ca_certs=/etc/a@b.pem",
        "redis+cluster://h:1",
        "unix:///run/r@dis.sock",
        "embedded:data",
    ],
)
def test_judge_a_url_that_may_be_a_stores_finds_no_fault(url: str) -> None:
    assert url_fault(url) == ""


@pytest.mark.parametrize("url", ["redis://:p@ss/w#rd@h:1/0", "redis://:pa/ss@h", "redis://u:a#b@h"])
def test_open_a_url_with_a_raw_password_says_how_to_encode_it(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_connection(url)
    assert str(refused.value).startswith("store.url: expected user and password percent-encoded")
    assert not any(part in str(refused.value) for part in ("ss/", "w#", "pa/", "a#b"))


def test_load_a_url_of_another_scheme_names_those_there_are() -> None:
    (text,) = refusal(WHOLE + "store: {url: 'http://:s3cret@h'}\n")
    assert text.startswith("f.yaml:8:14 store.url: expected redis://, rediss://")
    assert "s3cret" not in text


def test_load_a_url_by_reference_leaves_it_to_who_resolves_it() -> None:
    assert loaded(WHOLE + "store: {url: '${STORE}'}\n").store.url == "${STORE}"
