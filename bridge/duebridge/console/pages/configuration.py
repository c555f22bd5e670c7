"""The configuration in force: defaults merged, secrets masked."""

from typing import Any

import yaml
from starlette.responses import Response

from duebridge.config.render import masked_config
from duebridge.console.visit import Visit

SECTIONS = ("store", "brokers", "worker", "routes", "intakes", "serve")


async def page(visit: Visit) -> Response:
    """Return the page, with the routes that the person may see."""
    whole = masked_config(visit.site.config)
    whole["routes"] = _permitted(visit, whole.get("routes", {}), lambda name, _: name)
    whole["intakes"] = _permitted(visit, whole.get("intakes", {}), lambda _, of: of["route"])
    parts = {name: _text(whole[name]) for name in SECTIONS if whole.get(name)}
    return visit.page("configuration.html", "configuration", parts=parts)


def _permitted(visit: Visit, named: dict[str, Any], route_of: Any) -> dict[str, Any]:
    return {name: of for name, of in named.items() if visit.may_read(route_of(name, of))}


def _text(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100).rstrip()
