"""The chart's values.schema.json: `python -m deploy.helm.schema` rewrites it.

The models that read duebridge.yaml (`duebridge.config.models`) define what `config` may hold.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from deploy.helm.values import Values
from duebridge.config.schema import DIALECT, config_schema

ELSEWHERE = Path(__file__).resolve().parent / "duebridge" / "files" / "elsewhere.yaml"
PATH = Path(__file__).resolve().parent / "duebridge" / "values.schema.json"
# A ConfigMap of one's own has them; else the file is made of them.
NAMED = ["brokers", "routes"]


def values_schema() -> dict[str, Any]:
    """Return the schema of values.yaml."""
    config = config_schema()
    del config["$schema"], config["title"]
    definitions = config.pop("$defs")
    config["required"] = [each for each in config["required"] if each not in NAMED]
    values = _with_closed_maps(_without_titles(Values.model_json_schema()))
    values["$defs"] |= {"Config": config} | definitions
    values["properties"]["config"] = {"$ref": "#/$defs/Config"}
    values["properties"] |= {key: {"description": f"See {here}."} for key, here in _elsewhere()}
    named = {"existingConfigMap": {"minLength": 1}}
    has_own = {"required": ["existingConfigMap"], "properties": named}
    from_values = {"required": ["config"], "properties": {"config": {"required": NAMED}}}
    return {
        "$schema": DIALECT,
        "title": "values.yaml",
        **values,
        "if": has_own,
        "else": from_values,
    }


def _elsewhere() -> Iterable[tuple[str, str]]:
    """Return keys that a template refuses, with better words than a schema has."""
    found: dict[str, str] = yaml.safe_load(ELSEWHERE.read_text("utf-8"))
    return found.items()


def _without_titles(schema: Any) -> Any:
    """Drop titles, which repeat the key."""
    if isinstance(schema, dict):
        kept = (each for each in schema.items() if each[0] != "title" or isinstance(each[1], dict))
        return {key: _without_titles(value) for key, value in kept}
    return [_without_titles(each) for each in schema] if isinstance(schema, list) else schema


def _with_closed_maps(schema: Any) -> Any:
    """Refuse keys of a map that its pattern does not match: Pydantic leaves those unchecked."""
    if isinstance(schema, list):
        return [_with_closed_maps(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "patternProperties" in schema else {}
    return {key: _with_closed_maps(value) for key, value in schema.items()} | closed


def text() -> str:
    """Return the file's text."""
    return json.dumps(values_schema(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
