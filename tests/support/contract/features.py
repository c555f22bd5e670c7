"""What a broker can carry and tell: the words of the table in connectors/README.md."""

from dataclasses import dataclass, field, fields


def _feature(meaning: str) -> bool:
    return field(metadata={"meaning": meaning})  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Features:
    """What one connector's broker can do; a test of what it cannot do is skipped by this."""

    broker: str
    largest_body: int

    keys: bool = _feature("a key travels with the message")
    null_body: bool = _feature("a body of None (a tombstone) differs from an empty one")
    typed_headers: bool = _feature("header values arrive as the type they were; else as text")
    null_header_values: bool = _feature("a header value of None arrives as one")
    ordered_headers: bool = _feature("headers arrive in the order given")
    repeated_header_names: bool = _feature("a header name may occur more than once")
    properties: bool = _feature("AMQP properties travel")
    missing_target: bool = _feature("a missing target is noticed, and told apart per delivery")
    size_limit: bool = _feature("a message that is too large is refused by itself")
    invalid: bool = _feature("the broker validates records: an invalid one is refused by itself")


def meanings() -> dict[str, str]:
    """Return each feature's name and what it means, in the order of the table."""
    return {f.name: f.metadata["meaning"] for f in fields(Features) if "meaning" in f.metadata}
