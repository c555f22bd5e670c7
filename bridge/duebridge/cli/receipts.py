"""A receipt as a line, and whether it says yes."""

from duebridge.cli.output import Output, write, write_json
from duebridge.durations import format_instant
from duebridge.receipt import Receipt

_STORED = ("accepted", "duplicate", "replaced")


def is_stored(receipt: Receipt) -> bool:
    """Whether the store has the envelope as it was given."""
    return receipt.status in _STORED


def show_receipt(receipt: Receipt, output: Output) -> None:
    """Write a receipt: status, due instant and id, or all its fields in JSON."""
    if output is Output.JSON:
        write_json(receipt)
    else:
        write(f"{receipt.status:<9}  {format_instant(receipt.due_at_ms):<24}  {receipt.id}")
