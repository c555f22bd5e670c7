"""The OpenAPI description of the interface, made of the types that it reads and writes."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, TypeAlias

import msgspec

from duebridge.admin.route_stats import RouteStats
from duebridge.durations import DURATION_PATTERN
from duebridge.envelope import JSON, SHORT_BYTES, Target
from duebridge.http.bodies import MERGE_PATCH
from duebridge.http.endpoints import cloud_events, keys
from duebridge.http.endpoints.envelopes import ON_CONFLICT, Change, Move
from duebridge.http.endpoints.lines import LINES, LineReceipt
from duebridge.http.endpoints.readings import BUCKETS, HORIZONS, MOST_BUCKETS, Histogram, Routes
from duebridge.http.examples import EXAMPLES
from duebridge.http.operations import Operation, written_path
from duebridge.http.problems import PROBLEM, Problem
from duebridge.jsonl import EnvelopeLine
from duebridge.receipt import Known, Receipt

Schema: TypeAlias = dict[str, Any]

OPENAPI = "3.1.0"
REFERENCE = "#/components/schemas/{name}"
TYPES = (
    EnvelopeLine,
    Receipt,
    LineReceipt,
    Known,
    Move,
    Change,
    RouteStats,
    Routes,
    Histogram,
    Problem,
)
STANDARD = (400, 401, 403, 404, 429, 503)  # of any operation that takes a token
_TITLES = {
    200: "Done",
    201: "Stored",
    202: "Noted against the cold tier",
    400: "The request cannot be read",
    401: "No token, or an unknown one",
    403: "The token may not do this",
    404: "Unknown route or envelope",
    408: "The request came too slowly",
    409: "Not done, as the answer's status says",
    413: "The request or the envelope is too large",
    415: "The media type is not taken",
    422: "The envelope is refused, or the key is taken",
    429: "Too many requests of this token",
    503: "The store is away or full: make the same request again",
}


class Contract(msgspec.Struct, frozen=True):
    """The headers and answers of an operation, in addition to its `STANDARD` answers."""

    answers: Mapping[int, type | str]
    takes: Mapping[str, Schema] = {}
    refuses: tuple[int, ...] = ()
    headers: tuple[str, ...] = ()


def _ref(kind: type) -> Schema:
    return {"$ref": REFERENCE.format(name=kind.__name__)}


_CHANGES: Mapping[int, type | str] = {200: Change, 202: Change}
_POSTED = {
    JSON: _ref(EnvelopeLine),
    **{kind: {"type": "string", "description": "An envelope a line."} for kind in LINES},
    cloud_events.STRUCTURED: {
        "type": "object",
        "required": ["specversion", *cloud_events.REQUIRED],
    },
}
CONTRACTS: Mapping[str, Contract] = {
    "list_routes": Contract({200: Routes}),
    "show_stats": Contract({200: RouteStats}),
    "post": Contract(
        {200: Receipt, 201: Receipt},
        _POSTED,
        (408, 409, 413, 415, 422),
        ("key",),
    ),
    "show_histogram": Contract({200: Histogram}),
    "get": Contract({200: Known}),
    "patch": Contract(
        _CHANGES,
        {JSON: _ref(Move), MERGE_PATCH: _ref(Move)},
        (408, 409, 413, 415, 422),
        ("key",),
    ),
    "delete": Contract(_CHANGES, {}, (409, 422), ("key",)),
    "deliver_now": Contract(_CHANGES, {}, (409, 422), ("key",)),
    "metrics": Contract({200: "text/plain"}),
}
_PARAMETERS: Mapping[str, Schema] = {
    "route": {"name": "route", "in": "path", "required": True, "schema": {"type": "string"}},
    "id": {
        "name": "id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": SHORT_BYTES},
        "description": "Percent-encoded, a slash as %2F.",
    },
    "on_conflict": {
        "name": "on_conflict",
        "in": "query",
        "schema": {"enum": [*ON_CONFLICT], "default": ON_CONFLICT[0]},
        "description": "What to do where the id lives with other content.",
    },
    "horizon": {
        "name": "horizon",
        "in": "query",
        "schema": {"enum": [*HORIZONS], "default": HORIZONS[0]},
    },
    "buckets": {
        "name": "buckets",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_BUCKETS, "default": BUCKETS},
    },
    "key": {
        "name": keys.HEADER,
        "in": "header",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
        "description": "The same request under the same key is done once, within 24 hours.",
    },
}
# What the types do not say of their texts.
_DURATION = {"type": "string", "pattern": f"^(?=.){DURATION_PATTERN}$", "examples": ["15m"]}
_NULL = {"type": "null"}
_INSTANT = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}, _NULL]}
_TIGHTER: Mapping[str, Schema] = {
    "delay": {"anyOf": [_DURATION, _NULL]},
    "remember": {"anyOf": [_DURATION, _NULL]},
    "at": _INSTANT,
    "id": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": SHORT_BYTES}, _NULL]},
}
_ONE_BODY = [{"required": [name]} for name in ("body", "body_base64", "json")]
_ONE_DUE = [{"required": [name]} for name in ("delay", "at")]


def description(operations: Mapping[str, Mapping[str, Operation]]) -> Schema:
    """Return the description of these operations, by path and method."""
    _, schemas = msgspec.json.schema_components(
        TYPES, schema_hook=_of_target, ref_template=REFERENCE
    )
    for name, rules in (("EnvelopeLine", [_ONE_BODY, _ONE_DUE]), ("Move", [_ONE_DUE])):
        _tighten(schemas[name], rules)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "duebridge",
            "version": version("duebridge"),
            "description": "Delayed delivery for Kafka and RabbitMQ.",
        },
        "security": [{"token": []}],
        "paths": {
            written_path(path): {
                method.lower(): _operation(path, operation) for method, operation in methods.items()
            }
            for path, methods in operations.items()
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _tighten(schema: Schema, rules: list[list[Schema]]) -> None:
    properties = schema["properties"]
    properties.update({name: _TIGHTER[name] for name in _TIGHTER.keys() & properties.keys()})
    schema["allOf"] = [{"oneOf": rule} for rule in rules]


def _of_target(kind: type) -> Schema:
    if kind is not Target:
        raise NotImplementedError(kind)
    fields = {"additionalProperties": {"type": "string"}, "required": ["broker"]}
    return {"type": "object", "properties": {"broker": {"type": "string"}}, **fields}


def _operation(path: str, operation: Operation) -> Schema:
    name = operation.handler.__name__
    contract = CONTRACTS[name]
    named = [each for each in ("route", "id") if f"{{{each}" in path]
    summary, _, rest = str(operation.handler.__doc__).partition("\n")
    found: Schema = {
        "operationId": name,
        "summary": summary.strip(),
        "description": f"{rest.strip()} Scope: `{operation.scope}`.".strip(),
        "parameters": [_PARAMETERS[each] for each in (*named, *operation.query, *contract.headers)],
        "responses": _responses(name, contract),
    }
    if contract.takes:
        found["requestBody"] = {"required": True, "content": _content(name, contract.takes)}
    return found


def _responses(name: str, contract: Contract) -> Schema:
    refused = {str(status): _refused(status) for status in (*STANDARD, *contract.refuses)}
    done = {str(status): _done(name, status, kind) for status, kind in contract.answers.items()}
    return dict(sorted({**refused, **done}.items()))


def _done(name: str, status: int, kind: type | str) -> Schema:
    text: Schema = {"schema": {"type": "string"}}
    if isinstance(kind, str):
        return {"description": _TITLES[status], "content": {kind: text}}
    example = EXAMPLES.get(f"{name} {status}")
    content: Schema = {"schema": _ref(kind), **({"example": example} if example else {})}
    lines = {LINES[0]: text} if name == "post" and status == 200 else {}
    return {"description": _TITLES[status], "content": {JSON: content, **lines}}


def _refused(status: int) -> Schema:
    found: Schema = {"schema": _ref(Problem)}
    if example := EXAMPLES.get(str(status)):
        found["example"] = example
    return {"description": _TITLES[status], "content": {PROBLEM: found}}


def _content(name: str, takes: Mapping[str, Schema]) -> Schema:
    return {
        kind: {"schema": schema, "examples": _named(EXAMPLES.get(f"{name} {kind}", {}))}
        for kind, schema in takes.items()
    }


def _named(examples: Mapping[str, Any]) -> Schema:
    return {name: {"value": value} for name, value in examples.items()}
