"""Sizes as people write them."""

import pytest

from duebridge.config.fields import parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("512B", 512),
        ("1KiB", 1024),
        ("256KiB", 262_144),
        (" 64MiB ", 67_108_864),
        ("2GiB", 2_147_483_648),
    ],
)
def test_parse_size_with_unit_gives_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "value", [1024, 1.5, True, None, "", "1024", "-1B", "1.5KiB", "1KB", "1 KiB", "1kib", "KiB"]
)
def test_parse_size_without_unit_says_what_is_expected(value: object) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_size_bytes(value)
    expected = 'expected a size such as "512B", "256KiB", "64MiB"'
    assert str(caught.value) == f"{expected}; got {value!r}"
