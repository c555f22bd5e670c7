"""Examples of requests and answers, for the OpenAPI description."""

from collections.abc import Mapping
from typing import Any

ID = "order-42:timeout"
ROUTE = "order-timeout"
DUE_MS = 1_767_225_600_000
_RECEIPT = {"id": ID, "route": ROUTE, "due_at_ms": DUE_MS, "status": "accepted"}
_CHANGE = {"id": ID, "route": ROUTE}
_EVENT = {"specversion": "1.0", "id": "42", "source": "/orders", "type": "order.placed"}
_STATS = {
    "route": ROUTE,
    "pending": 120,
    "ready": 0,
    "unack": 3,
    "retry": 1,
    "dead": 0,
    "oldest_due_age_ms": 12,
    "held_since_ms": 0,
    "shards": 1,
}
_LINES = '{"body": "call back", "delay": "15m"}\n{"json": {"order": 43}, "delay": "1h"}\n'
EXAMPLES: Mapping[str, Any] = {
    "post application/json": {
        "text": {"body": "call back", "delay": "15m"},
        "json": {
            "json": {"order": 42},
            "delay": "15m",
            "id": ID,
            "key": "order-42",
            "headers": {"tenant": "a"},
        },
        "bytes": {"body_base64": "AAECAw==", "at": "2026-01-01T00:00:00Z"},
    },
    "post application/x-ndjson": {"lines": _LINES},
    "post application/jsonl": {"lines": _LINES},
    "post application/cloudevents+json": {
        "event": {**_EVENT, "delay": "15m", "data": {"order": 42}}
    },
    "post 201": _RECEIPT,
    "post 200": {**_RECEIPT, "status": "duplicate"},
    "get 200": {
        "id": ID,
        "route": ROUTE,
        "state": "pending",
        "due_at_ms": DUE_MS,
        "scheduled_at_ms": DUE_MS - 900_000,
        "expires_at_ms": 0,
        "attempt": 0,
        "failures": 0,
        "expiries": 0,
        "reason": "",
        "error_class": "",
        "error_message": "",
        "first_failed_at_ms": 0,
        "last_failed_at_ms": 0,
        "letter_error": "",
    },
    "patch application/json": {
        "later": {"delay": "30m"},
        "at": {"at": "2026-01-01T00:00:00Z"},
    },
    "patch 200": {**_CHANGE, "status": "rescheduled", "due_at_ms": DUE_MS},
    "patch 202": {**_CHANGE, "status": "recorded", "due_at_ms": DUE_MS},
    "delete 200": {**_CHANGE, "status": "cancelled"},
    "delete 202": {**_CHANGE, "status": "recorded"},
    "deliver_now 200": {**_CHANGE, "status": "rescheduled", "due_at_ms": DUE_MS},
    "deliver_now 202": {**_CHANGE, "status": "recorded", "due_at_ms": DUE_MS},
    "list_routes 200": {"routes": [_STATS]},
    "show_stats 200": _STATS,
    "show_histogram 200": {
        "route": ROUTE,
        "horizon": "hour",
        "now_ms": DUE_MS,
        "buckets": [
            {"from_ms": DUE_MS, "to_ms": DUE_MS + 1_800_000, "pending": 80, "retry": 1},
            {"from_ms": DUE_MS + 1_800_000, "to_ms": DUE_MS + 3_600_000, "pending": 7, "retry": 0},
        ],
    },
    "401": {
        "title": "A token is needed",
        "status": 401,
        "detail": "Authorization: expected Bearer and a known token; got none",
    },
    "409": {
        "title": "Not stored: conflict",
        "status": 409,
        "detail": "id: it lives with other content; on_conflict=replace replaces that",
        "answer": {**_RECEIPT, "status": "conflict"},
    },
    "422": {
        "title": "The envelope is refused",
        "status": 422,
        "detail": "delay, at: expected exactly one of the two; got neither",
    },
    "503": {
        "title": "The delay store is away",
        "status": 503,
        "detail": f"the delay store did not answer; no answer for id '{ID}'",
        "ids": [ID],
    },
}
