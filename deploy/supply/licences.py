"""The licence of each locked package, and whether the policy allows it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from license_expression import AND, ExpressionError, LicenseSymbol, get_spdx_licensing

from deploy.supply.locked import Pin, installed

POLICY = Path(__file__).with_name("policy.toml")
SPDX = get_spdx_licensing()
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Policy:
    """`policy.toml`, which explains each field."""

    allowed: list[str]
    allowed_for: dict[str, str]
    classifiers: dict[str, str]
    read: dict[str, str]
    accepted: dict[str, str]


def read_policy(path: Path = POLICY) -> Policy:
    """Return the policy of a file."""
    return Policy(**tomllib.loads(path.read_text()))


def licence(pin: Pin, policy: Policy) -> str:
    """Return the SPDX expression of a package by its metadata, else as read, else `unknown`."""
    package = installed(pin)
    fields = package.metadata.json if package else {}
    classifiers = [each.split(" :: ")[-1] for each in fields.get("classifier", ())]
    claims = [fields.get("license_expression"), fields.get("license")]
    claims += [*map(policy.classifiers.get, classifiers), policy.read.get(pin.name)]
    return next((str(claim) for claim in claims if claim and is_spdx(str(claim))), UNKNOWN)


def is_spdx(text: str) -> bool:
    """Whether a text is an SPDX expression."""
    try:
        return SPDX.parse(text, validate=True) is not None
    except ExpressionError:
        return False


def is_allowed(name: str, expression: str, policy: Policy) -> bool:
    """Whether a package may have a licence: all parts of an AND, one of an OR."""
    allowed = {*policy.allowed, policy.allowed_for.get(name)}
    return is_spdx(expression) and satisfied(SPDX.parse(expression), allowed)


def satisfied(term: object, allowed: set[str | None]) -> bool:
    """Whether the licences satisfy a parsed expression."""
    if isinstance(term, LicenseSymbol):
        return term.key in allowed
    parts = getattr(term, "args", ())  # none for "X WITH exception": allowed only in full
    if not parts:
        return str(term) in allowed
    return (all if isinstance(term, AND) else any)(satisfied(part, allowed) for part in parts)
