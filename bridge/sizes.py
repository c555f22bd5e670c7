"""Sizes as people write them, turned into bytes."""

import re

_SIZE = re.compile(r"([0-9]{1,9})(B|KiB|MiB|GiB)")
_BYTES_PER_UNIT = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_size_bytes(value: object) -> int:
    """Return bytes; raises `ValueError` for a bare number or an unreadable value.

    >>> parse_size_bytes("64MiB")
    67108864
    """
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'expected a size such as "512B", "256KiB", "64MiB"; got {value!r}')
    return int(match[1]) * _BYTES_PER_UNIT[match[2]]


def format_bytes(size_bytes: int) -> str:
    """Return the shortest exact size text.

    >>> format_bytes(67108864), format_bytes(1000), format_bytes(0)
    ('64MiB', '1000B', '0B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _BYTES_PER_UNIT[unit] == 0:
            return f"{size_bytes // _BYTES_PER_UNIT[unit]}{unit}"
    return f"{size_bytes}B"
