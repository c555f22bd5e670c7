"""Examines every broker in use through its broker type, all at once; each has a time limit."""

import threading
import time
from collections import defaultdict
from concurrent.futures import Future

from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.checks import About, Destination, Finding, failure
from duebridge.ports.discovery import ClientMissing, broker_type, naming

DEADLINE_S = 5.0
GRACE_S = 2.0  # beyond it: a name that resolves slowly, a client that ends slowly
_GLOB = frozenset("*?[")


def examine_brokers(config: Config, deadline_s: float = DEADLINE_S) -> list[Finding]:
    """Return the findings of all brokers in use, broker by broker. Raises nothing."""
    begun = {
        broker: _begin(config, broker, destinations, deadline_s)
        for broker, destinations in sorted(destinations_of(config).items())
    }
    give_up_at = time.monotonic() + deadline_s + GRACE_S
    found: list[Finding] = []
    for broker, future in begun.items():
        found += _end(broker, future, max(0.0, give_up_at - time.monotonic()))
    return found


def destinations_of(config: Config) -> dict[str, list[Destination]]:
    """Return the targets that the routes name, by broker; globs of `allow_targets` are left out."""
    found: dict[str, list[Destination]] = defaultdict(list)
    for name, route in config.routes.items():
        for place, target in route.targets().items():
            path = ".".join(str(part) for part in ("routes", name, *place))
            if not (place[0] == "allow_targets" and _is_glob(target)):
                found[target.broker].append(Destination(name, path, target, route.max_body))
    return found


def _is_glob(target: Target) -> bool:
    return any(_GLOB & set(value) for _, value in target.fields)


def _begin(
    config: Config, broker: str, destinations: list[Destination], deadline_s: float
) -> "Future[list[Finding]]":
    future: Future[list[Finding]] = Future()

    def run() -> None:
        try:
            future.set_result(_examine(config, broker, destinations, deadline_s))
        except Exception as error:
            future.set_exception(error)

    # A daemon: a check that hangs must not keep the process.
    threading.Thread(target=run, name=f"examine-{broker}", daemon=True).start()
    return future


def _examine(
    config: Config, broker: str, destinations: list[Destination], deadline_s: float
) -> list[Finding]:
    settings = resolved_broker(config, broker)
    kind = config.brokers[broker].type
    with naming(broker, kind):
        return broker_type(kind).examine(f"brokers.{broker}", settings, destinations, deadline_s)


def _end(broker: str, future: "Future[list[Finding]]", within_s: float) -> list[Finding]:
    place = f"brokers.{broker}"
    try:
        return future.result(within_s)
    except TimeoutError:
        text = "no answer in time"
        return [failure(About.BROKER, place, text, "see whether it hangs, and try again")]
    except ClientMissing as error:
        return [failure(About.CONFIG, place, error.missing, error.remedy)]
    except ConfigError as error:
        text = str(error).removeprefix(place).lstrip(":. ")
        return [failure(About.CONFIG, place, text, "mend the settings of this broker")]
    except Exception as error:  # a connector's defect must not hide the findings of others
        text = f"it could not be examined: {type(error).__name__}"
        return [failure(About.BROKER, place, text, "this is a defect of duebridge: report it")]
