"""What every test may ask for: the real services, or a skip that says why (in CI: a failure)."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.support.checkout import ROOT, missing

# How fast a machine draws examples is no property of the code.
settings.register_profile("duebridge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("duebridge")


@pytest.fixture(scope="session")
def service() -> Callable[[str, str], str]:
    """Return a lookup of the local services, as `make services-up` left them."""
    state = ROOT / ".services" / "services.json"

    def look_up(name: str, field: str) -> str:
        if not state.exists():
            missing(name, "run `make services-up`")
        address = json.loads(state.read_text()).get(name, {}).get(field)
        return str(address) if address else missing(name, "run `make services-up`")

    return look_up


@pytest.fixture(scope="session")
def redis_url(service: Callable[[str, str], str]) -> str:
    return service("redis", "url")


@pytest.fixture(scope="session")
def kafka_bootstrap(service: Callable[[str, str], str]) -> str:
    return service("kafka", "bootstrap")


@pytest.fixture(scope="session")
def rabbitmq_url(service: Callable[[str, str], str]) -> str:
    return service("rabbitmq", "url")
