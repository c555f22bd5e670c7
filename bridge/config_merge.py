"""How a route's settings are put over the defaults: plain values, before they are checked."""

from typing import Any

_BLOCKS = ("retry", "on_target_error")
_NOT_WITH_FIXED = {"max", "jitter"}


def merged_route(name: str, defaults: dict[str, Any], given: Any) -> Any:
    """Return a route over the defaults, its `retry` and `on_target_error` field by field.

    What the route inherits and does not apply, `max` and `jitter` with `backoff: fixed`, is left
    out; what it gives itself stays, for the check to refuse. A value that is no mapping stays too.
    """
    given = {} if given is None else given
    if not isinstance(given, dict):
        return given
    merged = {**defaults, "name": name, **given}
    for block in _BLOCKS:
        if isinstance(defaults.get(block), dict) and isinstance(merged[block], dict | None):
            merged[block] = {**defaults[block], **(merged[block] or {})}
    if isinstance(given.get("retry"), dict):
        merged["retry"] = _without_idle(merged["retry"], given["retry"])
    return merged


def _without_idle(retry: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    if retry.get("backoff") != "fixed":
        return retry
    return {key: retry[key] for key in retry if key in given or key not in _NOT_WITH_FIXED}
