"""The field by which the form of a dry run names what was shown."""

import base64
import secrets

import pytest

from duebridge.console.forms import MOST_BYTES
from duebridge.console.pages.dead import MOST_LOOKED
from duebridge.console.seen import MARK_BYTES, Seen
from duebridge.envelope import SHORT_BYTES
from duebridge.errors import EnvelopeError


def test_field_of_the_longest_ids_of_a_look_fits_into_a_form() -> None:
    ids = [f"{number:04}".ljust(SHORT_BYTES, "x") for number in range(MOST_LOOKED)]
    seen = Seen({each: secrets.token_bytes(MARK_BYTES) for each in ids})
    assert Seen.read(seen.field) == seen
    assert [*Seen.read(seen.field).marks] == ids
    assert len(seen.field) < 0.75 * MOST_BYTES


def test_field_has_an_id_that_is_no_text() -> None:
    seen = Seen({"\udcff": b"mark"})
    assert Seen.read(seen.field) == seen


@pytest.mark.parametrize(
    "text", ["", "x", "é", base64.b64encode(b"no field").decode(), Seen({"a": b"m"}).field[:-4]]
)
def test_read_of_another_field_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="the field of a dry run"):
        Seen.read(text)
