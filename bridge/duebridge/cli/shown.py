"""Shows whole envelopes: key, headers, properties, target and size; the body only on demand."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from duebridge.cli.output import Output, write_json, write_table
from duebridge.durations import format_instant
from duebridge.jsonl import Base64, json_value
from duebridge.receipt import EnvelopeDetails

BodyOption = Annotated[bool, typer.Option("--body", help="Include the body.")]

FIELD_COLUMNS = ("field", "value")
LONG_COLUMNS = ("key", "headers", "target", "priority", "size")
MOST_CELL = 80  # characters of headers or of a body in a table of many


def as_json(shown: EnvelopeDetails, with_body: bool) -> dict[str, Any]:
    """Return an envelope as JSON has it: key, headers and body as in a line of send --jsonl."""
    fields = msgspec.structs.asdict(shown)
    fields["key"] = json_value(shown.key)
    fields["headers"] = [(name, json_value(value)) for name, value in shown.headers]
    fields["body"] = json_value(shown.body)
    if not with_body:
        del fields["body"]
    return fields


def as_rows(shown: EnvelopeDetails, with_body: bool) -> list[tuple[str, str]]:
    """Return an envelope as rows of field and value, for people."""
    fields = as_json(shown, with_body)
    properties = msgspec.to_builtins(fields.pop("properties"))
    headers = fields.pop("headers")
    fields |= {f"property {name}": value for name, value in properties.items()}
    return [
        *field_rows(fields),
        *((f"header {name}", value_cell(value)) for name, value in headers),
    ]


def write_details(shown: EnvelopeDetails, output: Output, *, with_body: bool) -> None:
    """Write everything known of an envelope: fields in rows, or JSON."""
    if output is Output.JSON:
        write_json(as_json(shown, with_body))
    else:
        write_table(FIELD_COLUMNS, as_rows(shown, with_body))


def as_block(shown: EnvelopeDetails, with_body: bool) -> list[tuple[str, str]]:
    """Return `as_rows` for a list of many: headers and body are cut."""
    return [
        (name, _cut(value) if name == "body" or name.startswith("header ") else value)
        for name, value in as_rows(shown, with_body)
    ]


def long_cells(shown: EnvelopeDetails, with_body: bool) -> tuple[str, ...]:
    """Return the cells of `LONG_COLUMNS`, and of the body."""
    headers = ", ".join(f"{name}={value_cell(json_value(value))}" for name, value in shown.headers)
    cells = (
        value_cell(json_value(shown.key)),
        value_cell(_cut(headers)),
        value_cell(shown.target),
        value_cell(shown.properties.priority),
        value_cell(shown.body_size_bytes),
    )
    return (*cells, _cut(value_cell(json_value(shown.body)))) if with_body else cells


def field_rows(fields: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the fields as rows for people; instants are RFC 3339, and lose the suffix _ms."""
    return [
        (name.removesuffix("_ms"), format_instant(value))
        if name.endswith("_at_ms") and isinstance(value, int)
        else (name, value_cell(value))
        for name, value in fields.items()
    ]


def error_text(error_class: str, error_message: str) -> str:
    """Return class and message of an error for people, empty for none."""
    return ": ".join(filter(None, (error_class, error_message)))


def value_cell(value: object) -> str:
    """Return a value as text for people, a dash for none."""
    if isinstance(value, Base64):
        return f"base64 {value.base64}"
    return "-" if value is None or value == "" else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CELL else f"{text[: MOST_CELL - 1]}…"
