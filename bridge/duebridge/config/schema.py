"""Generates the JSON Schema of the configuration file, for editors that check and complete YAML.

It accepts everything that `duebridge.config.load` accepts. Rules across settings (the broker that a
target names, leases and deadlines) are checked by the loader only.
"""

import ast
import inspect
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from duebridge.config.brokers import BROKER, PLACEHOLDER, TARGET
from duebridge.config.fields import NAME, NAME_EXPECTED, REFERENCE
from duebridge.config.intakes import DECLARATION, SOURCE
from duebridge.config.models import Config, RetryPolicy, Route, RouteSettings
from duebridge.ports.discovery import loadable_types

Schema: TypeAlias = dict[str, Any]

# The newest dialect that common editors fully support.
DIALECT = "http://json-schema.org/draft-07/schema#"
_REFERENCE: Schema = {"type": "string", "pattern": REFERENCE}
_NUMBER_AS_TEXT: Schema = {"type": "string", "pattern": f"^-?[0-9]{{1,18}}$|{REFERENCE}"}
_BOUNDS = {"ge": "minimum", "le": "maximum"}  # pydantic's own words, beside a validator
_NAMES: Schema = {"pattern": f"^{NAME}$", "patternErrorMessage": f"expected {NAME_EXPECTED}"}


def config_schema() -> Schema:
    """Return the schema of a configuration file; its brokers and targets are all installed ones."""
    schema = Config.model_json_schema(schema_generator=_AsWritten)
    definitions, blocks = schema["$defs"], schema["properties"]
    definitions[RetryPolicy.__name__] |= _only_what_applies()
    types = loadable_types().values()
    _put(schema, BROKER, [_defined(definitions, kind.settings) for kind in types])
    _put(schema, TARGET, [_defined(definitions, kind.target) for kind in types])
    _put(schema, SOURCE, [_defined(definitions, kind.source) for kind in types if kind.source])
    declared = [kind.declaration for kind in types if kind.declaration]
    _put(schema, DECLARATION, [_defined(definitions, model) for model in declared])
    for key in RouteSettings.model_fields:  # a route inherits them
        definitions[Route.__name__]["properties"][key].pop("default", None)
    for block in ("brokers", "routes", "intakes"):
        blocks[block]["propertyNames"] = _NAMES
    title = {"$schema": DIALECT, "title": "duebridge.yaml"}
    return {**title, **schema, "description": "The configuration of duebridge."}


class _AsWritten(GenerateJsonSchema):
    """Adapts pydantic's schema of the models to the form of the file."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        found.pop("title")
        if "required" not in found:
            found["type"] = ["object", "null"]  # all its lines may be commented out
        for key, text in _docstrings(schema["cls"]).items():
            found["properties"][key]["description"] = text
        for described in found["properties"].values():
            _tidy(described)
        return found

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), _NUMBER_AS_TEXT]}

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        found = super().str_schema(schema)
        return {"anyOf": [found, _REFERENCE]} if "maxLength" in found else found

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        is_number = isinstance(schema["expected"][0], int)
        as_text = _NUMBER_AS_TEXT if is_number else _REFERENCE
        return {"anyOf": [super().literal_schema(schema), as_text]}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        values = self.generate_inner(schema["values_schema"])
        return {"type": "object", "additionalProperties": values}


def _defined(definitions: dict[str, Schema], model: type[BaseModel]) -> Schema:
    """Add a model of a broker type to the definitions; return a reference to it."""
    found = model.model_json_schema(schema_generator=_AsWritten)
    definitions |= found.pop("$defs", {})
    definitions[model.__name__] = found
    return {"$ref": f"#/$defs/{model.__name__}"}


def _put(schema: Any, placeholder: str, choices: list[Schema]) -> None:
    """Replace the placeholder everywhere in a schema by `anyOf` the choices."""
    for child in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(child, dict) and child.get(PLACEHOLDER) == placeholder:
            del child[PLACEHOLDER]
            child["anyOf"] = choices
        elif isinstance(child, dict | list):
            _put(child, placeholder, choices)


def _tidy(described: Schema) -> None:
    """Drop titles, which repeat the key, and defaults that are not in the file's form."""
    described.pop("title", None)
    if not isinstance(described.get("default"), str | int):
        described.pop("default", None)
    for said, meant in _BOUNDS.items():
        if said in described:
            described[meant] = described.pop(said)


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field, parsed from the source."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        [definition] = ast.parse(inspect.getsource(each)).body
        assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(ast.Name(key)), ast.Expr(ast.Constant(str(text))):
                    found[key] = text
    return found


def _only_what_applies() -> Schema:
    is_fixed = {"required": ["backoff"], "properties": {"backoff": {"const": "fixed"}}}
    without = {"jitter": {"anyOf": [{"const": "none"}, _REFERENCE]}, "max": False}
    return {"if": is_fixed, "then": {"properties": without}}
