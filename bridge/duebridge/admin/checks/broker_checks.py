"""Examines every broker and source in use by its type, all at once; each has a time limit."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple

from duebridge.config.broker_access import source_plan, using
from duebridge.config.load import resolved_broker
from duebridge.config.models import Config
from duebridge.envelope import Target
from duebridge.errors import ConfigError
from duebridge.ports.checks import Destination, Finding, FindingSubject, Severity, failure
from duebridge.ports.discovery import ClientMissing
from duebridge.ports.source import SourcePlan
from duebridge.runtime import in_background, left_s
from duebridge.scheduling.limits import is_glob

DEADLINE_S = 10.0
GRACE_S = 10.0  # beyond it: a client's steps each have a part of the deadline, and add up to more


class Examination(NamedTuple):
    """One call of a broker type, about the place in the configuration, and of which broker."""

    place: str
    broker: str
    run: Callable[[], list[Finding]]


def examine_brokers(config: Config, deadline_s: float = DEADLINE_S) -> list[Finding]:
    """Return the findings of all brokers and intakes in use, one by one. Raises nothing."""
    examinations = [*_of_targets(config, deadline_s), *_of_sources(config, deadline_s)]
    begun = [(each, in_background(each.run, f"examine-{each.place}")) for each in examinations]
    within_s = deadline_s + GRACE_S
    give_up_at = time.monotonic() + within_s
    found: list[Finding] = []
    missing: set[tuple[str, str]] = set()
    for (place, broker, _), future in begun:
        wait([future], left_s(give_up_at))
        told = _outcome(place, future) if future.done() else [_hangs(place, within_s)]
        found += [each for each in told if (broker, each.found) not in missing]
        missing |= {(broker, each.found) for each in told if _is_of_target(each)}
    return found


def _is_of_target(finding: Finding) -> bool:
    """Whether it says that a route's target fails: an intake that declares it need not, too."""
    return finding.severity is Severity.FAILURE and finding.place.startswith("routes.")


def _of_targets(config: Config, deadline_s: float) -> Iterator[Examination]:
    for broker, destinations in sorted(destinations_of(config).items()):
        run = partial(_examine, config, broker, destinations, deadline_s)
        yield Examination(f"brokers.{broker}", broker, run)


def _of_sources(config: Config, deadline_s: float) -> Iterator[Examination]:
    for name in sorted(config.intakes):
        place, broker = f"intakes.{name}.source", config.intakes[name].source.broker
        run = partial(_examine_source, config, name, place, deadline_s)
        yield Examination(place, broker, run)


def destinations_of(config: Config) -> dict[str, list[Destination]]:
    """Return the targets that routes and intakes name, by broker.

    Globs of `allow_targets` are left out.
    """
    found: dict[str, list[Destination]] = defaultdict(list)
    plans = _plans(config)
    for name, route in config.routes.items():
        for place, target in route.targets().items():
            path = ".".join(str(part) for part in ("routes", name, *place))
            if not (place[0] == "allow_targets" and _is_glob(target)):
                each = Destination(name, path, target, route.max_body, plans[target.broker])
                found[target.broker].append(each)
    for name, intake in config.intakes.items():
        if (letters := intake.dead_letter) is not None:  # else the route's, which is above
            path, most = f"intakes.{name}.dead_letter", config.routes[intake.route].max_body
            each = Destination(intake.route, path, letters, most, plans[letters.broker])
            found[letters.broker].append(each)
    return found


def _plans(config: Config) -> Mapping[str, tuple[SourcePlan, ...]]:
    found: dict[str, tuple[SourcePlan, ...]] = defaultdict(tuple)
    for name, intake in config.intakes.items():
        found[intake.source.broker] += (source_plan(config, name),)
    return found


def _is_glob(target: Target) -> bool:
    return any(is_glob(value) for _, value in target.fields)


def _examine(
    config: Config, broker: str, destinations: list[Destination], deadline_s: float
) -> list[Finding]:
    settings = resolved_broker(config, broker)
    with using(config, broker) as kind:
        return kind.examine(f"brokers.{broker}", settings, destinations, deadline_s)


def _examine_source(config: Config, name: str, place: str, deadline_s: float) -> list[Finding]:
    broker = config.intakes[name].source.broker
    settings, plan = resolved_broker(config, broker), source_plan(config, name)
    with using(config, broker) as kind:
        return kind.examine_source(place, settings, plan, deadline_s)


def _hangs(place: str, within_s: float) -> Finding:
    text = f"no answer within {within_s:g} s"
    return failure(FindingSubject.BROKER, place, text, "see whether it hangs, and try again")


def _outcome(place: str, future: "Future[list[Finding]]") -> list[Finding]:
    try:
        return future.result()
    except ClientMissing as error:
        return [failure(FindingSubject.CONFIG, place, error.missing, error.remedy)]
    except ConfigError as error:
        texts = [line.removeprefix(place).lstrip(":. ") for line in str(error).splitlines()]
        remedy = "fix the settings of this broker"
        return [failure(FindingSubject.CONFIG, place, text, remedy) for text in texts]
    except (Exception, SystemExit) as error:  # a defect must not hide the findings of others
        text = f"it could not be examined: {type(error).__name__}"
        return [
            failure(FindingSubject.BROKER, place, text, "this is a defect of duebridge: report it")
        ]
