"""Whether an object is what Kubernetes and the operators take; no kind goes unchecked."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

SCHEMAS = Path(__file__).resolve().parent / "schemas"
VERSIONS = tuple(path.stem.partition("-")[2] for path in sorted(SCHEMAS.glob("kubernetes-*.json")))


@cache
def validators(version: str) -> dict[str, Draft7Validator]:
    """Return a validator for each kind, by `apiVersion kind`."""
    found = {}
    for path in SCHEMAS.glob("*.json"):
        if path.stem.startswith("kubernetes-") and path.stem != f"kubernetes-{version}":
            continue
        file = json.loads(path.read_text("utf-8"))
        for kind, schema in file["kinds"].items():
            found[kind] = Draft7Validator({**schema, "$defs": file["$defs"]})
    return found


def faults(each: dict[str, Any], version: str) -> Iterator[str]:
    """Yield what is wrong with an object; a kind without a schema is wrong."""
    kind = f"{each.get('apiVersion')} {each.get('kind')}"
    validator = validators(version).get(kind)
    if validator is None:
        yield f"{kind}: no schema for this kind"
        return
    for error in validator.iter_errors(each):
        yield f"{kind} {each['metadata']['name']}: {error.json_path}: {error.message[:200]}"
