"""Renders bytes for a page as JSON, text or hexadecimal, up to a bound."""

import unicodedata
from typing import Literal, NamedTuple

import msgspec

MOST_BYTES = 16 * 1024
MOST_VALUE = 2_000  # characters of a header or key
_HEX_BYTES = 2 * 1024
_ROW = 16
_PLAIN = frozenset("\n\r\t")


class Preview(NamedTuple):
    """Text to show; `form` is json, text, hex or none, `shown_bytes` how much of it is shown."""

    form: Literal["json", "text", "hex", "none"]
    text: str
    size_bytes: int
    shown_bytes: int

    @property
    def is_cut(self) -> bool:
        """Whether there is more than is shown."""
        return self.shown_bytes < self.size_bytes


def preview(body: bytes | None) -> Preview:
    """Return the preview of a body by what it holds; whatever it holds, none fails."""
    if body is None:
        return Preview("none", "", 0, 0)
    if (text := _readable(body)) is None:
        part = body[:_HEX_BYTES]
        return Preview("hex", _hex(part), len(body), len(part))
    if len(body) <= MOST_BYTES and (indented := _indented(body)):
        return Preview("json", indented, len(body), len(body))
    return Preview("text", text, len(body), min(len(body), MOST_BYTES))


def readable_value(value: object) -> str:
    """Return a header's value or a key as bounded text, bytes that are no text as hexadecimal."""
    if isinstance(value, bytes):
        text = _readable(value)
        value = f"0x{value[:MOST_VALUE].hex()}" if text is None else text
    if value is None or isinstance(value, bool):
        value = str(value).lower() if value is not None else "null"
    text = str(value)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}… ({len(text):,} characters)"


def fields_of(value: msgspec.Struct) -> list[tuple[str, object]]:
    """Return the fields of a struct that were given, such as of an envelope's properties."""
    return list(msgspec.to_builtins(value).items())


def _readable(body: bytes) -> str | None:
    """Return the beginning as text; None where it is no UTF-8, or holds control characters."""
    part = body[:MOST_BYTES]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if len(part) == len(body) or error.start < MOST_BYTES - 3:
            return None
        text = part[: error.start].decode()  # the bound cut a character in two
    if any(unicodedata.category(each) == "Cc" and each not in _PLAIN for each in text):
        return None
    return text


def _indented(body: bytes) -> str:
    """Return JSON indented, its numbers as they are written; "" if it is no object or list."""
    if body.lstrip()[:1] not in (b"{", b"["):
        return ""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _hex(body: bytes) -> str:
    rows = []
    for start in range(0, len(body), _ROW):
        row = body[start : start + _ROW]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{start:08x}  {row.hex(' '):<{_ROW * 3 - 1}}  {text}")
    return "\n".join(rows)
