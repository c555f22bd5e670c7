#!/usr/bin/env python3
"""Real Redis, RabbitMQ and Apache Kafka for this checkout: up, down, status, env, tools.

Standard library only: it runs before there is any virtual environment.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docker_engine
import kafka_server
import packages
import rabbitmq_server
import redis_server
from probes import answers
from process import end, is_alive, tail
from state import Place, Service, ServiceError, load, locked, save

DEADLINE_SECONDS = 120.0
# The slow starters first: they come up while the next one is being started.
STARTERS: dict[str, Callable[[Place], Service]] = {
    "rabbitmq": rabbitmq_server.start,
    "kafka": kafka_server.start,
    "redis": redis_server.start,
}
VARIABLES = {
    "redis": "DUEBRIDGE_TEST_REDIS_URL",
    "rabbitmq": "DUEBRIDGE_TEST_RABBITMQ_URL",
    "kafka": "DUEBRIDGE_TEST_KAFKA_BOOTSTRAP",
}


def say(name: str, text: str) -> None:
    """Print a line about a service."""
    print(f"{name:<9} {text}", flush=True)


def is_up(service: Service) -> bool:
    """Tell whether a service answers."""
    return answers(service.name, service.host, service.port)


def is_gone(service: Service) -> bool:
    """Tell whether waiting is useless; a native one that lives may just not answer yet."""
    if service.started_by_us and service.engine == "native":
        return not is_alive(service.process)
    return not is_up(service)


def choose_engine(wanted: str | None, names: Sequence[str]) -> str:
    """Prefer native, installing what it needs; else Docker; else say the line to type."""
    if wanted == "docker":
        if not docker_engine.is_there():
            raise ServiceError(docker_engine.line_to_type())
        return "docker"
    absent = packages.missing(names)
    if absent and packages.can_install():
        packages.install(absent)
        absent = packages.missing(names)
    if absent and (wanted == "native" or not docker_engine.is_there()):
        raise ServiceError(packages.line_to_type(absent))
    return "docker" if absent else "native"


def start(place: Place, name: str, engine: str) -> Service:
    """Start one service."""
    if engine == "docker":
        return docker_engine.start(place, name)
    return STARTERS[name](place)


def stop(place: Place, services: Sequence[Service]) -> None:
    """Ask all of them first, then wait: they end side by side."""
    native = [service for service in services if service.engine == "native"]
    end([service.process for service in native if service.process])
    # A node still speaks to its port mapper while it stops.
    end([helper for service in native for helper in service.helpers])
    if any(service.name == "rabbitmq" for service in native):
        rabbitmq_server.end_leftovers(place)
    for service in services:
        if service.engine == "docker":
            docker_engine.stop(place, service.name)


def wait_for(place: Place, service: Service, began: float) -> bool:
    """Wait until it answers; False, with the end of its log shown, when it does not."""
    while not is_up(service):
        late = time.monotonic() - began > DEADLINE_SECONDS
        if late or (service.engine == "native" and is_gone(service)):
            why = f"no answer in {DEADLINE_SECONDS:.0f} s" if late else "ended"
            print(f"{service.name:<9} did not start: {why}; the end of its log:", file=sys.stderr)
            print(end_of_log(place, service), file=sys.stderr)
            return False
        time.sleep(0.05)
    return True


def end_of_log(place: Place, service: Service) -> str:
    """Return the last lines of a service's log, and where it is."""
    if service.engine == "docker":
        return docker_engine.last_lines(place, service.name) + f"  log: {service.log}"
    return tail(Path(service.log))


def start_the_gone(place: Place, names: Sequence[str], wanted: str | None) -> list[str]:
    """Start what does not run; each is on record at once, should we be interrupted."""
    services = load(place)
    gone = [name for name in names if name not in services or is_gone(services[name])]
    foreign = [name for name in gone if name in services and not services[name].started_by_us]
    if foreign:
        raise ServiceError(f"{foreign[0]} at {services[foreign[0]].address} is not ours to start")
    engine = choose_engine(wanted, gone) if gone else ""
    stop(place, [services.pop(name) for name in gone if name in services])
    for name in sorted(gone, key=list(STARTERS).index):
        services[name] = start(place, name, engine)
        save(place, services)
    return gone


def up(place: Place, names: Sequence[str], wanted: str | None) -> int:
    """Start what does not run, wait for all, say where each one is."""
    fresh = start_the_gone(place, names, wanted)
    # Counted from here: fetching packages and jars takes as long as the network does.
    began, services = time.monotonic(), load(place)
    failed = [name for name in names if not wait_for(place, services[name], began)]
    for name in [name for name in names if name not in failed]:
        state = f"started ({services[name].engine})" if name in fresh else "already running"
        say(name, f"{state}: {services[name].address}  log: {services[name].log}")
    stop(place, [services.pop(name) for name in failed])
    save(place, services)
    return 1 if failed else 0


def down(place: Place, names: Sequence[str]) -> int:
    """Stop what this checkout started, and nothing else."""
    services = load(place)
    mine = [name for name in names if name in services and services[name].started_by_us]
    stop(place, [services[name] for name in mine])
    for name in names:
        if name in mine:
            say(name, f"stopped; its data stay in {services.pop(name).data}")
        else:
            say(name, "not started by us: left alone" if name in services else "not running")
    save(place, services)
    return 0


def status(place: Place, names: Sequence[str]) -> int:
    """Print a table of the services."""
    services = load(place)
    states = {name: name in services and is_up(services[name]) for name in names}
    print(f"{'service':<9} {'state':<6} {'with':<7} {'pid':<8} {'address':<45} log")
    for name in names:
        found = services.get(name)
        pid = str(found.process.pid) if found and found.process else "-"
        row = (found.engine, pid, found.address, found.log) if found else ("-", "-", "-", "-")
        state = "up" if states[name] else "down"
        print(f"{name:<9} {state:<6} {row[0]:<7} {row[1]:<8} {row[2]:<45} {row[3]}")
    return 0 if all(states.values()) else 1


def env(place: Place, names: Sequence[str]) -> int:
    """Print the addresses as a shell takes them."""
    services = load(place)
    for name in names:
        if name in services:
            print(f"export {VARIABLES[name]}={services[name].address}")
    missing = [name for name in names if name not in services]
    if missing:
        print(f"not up: {', '.join(missing)}; type: make services-up", file=sys.stderr)
    return 1 if missing else 0


def tools() -> int:
    """Install the programs that tests call; without them those tests are skipped."""
    absent = packages.missing_tools()
    if absent and packages.can_install():
        packages.install(absent)
    elif absent:
        say("tools", f"{', '.join(absent)}: its tests are skipped; {packages.line_to_type(absent)}")
    return 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="services.py", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "env", "tools"])
    parser.add_argument("--with", dest="engine", choices=["native", "docker"])
    parser.add_argument("--only", default=",".join(VARIABLES), metavar="redis,kafka,rabbitmq")
    chosen = parser.parse_args(words)
    chosen.names = [name for name in VARIABLES if name in chosen.only.split(",")]
    unknown = set(chosen.only.split(",")) - set(STARTERS)
    if unknown:
        parser.error(f"no such service: {', '.join(sorted(unknown))}")
    return chosen


def run(place: Place, chosen: argparse.Namespace) -> int:
    """Do what was asked; what changes the state does it alone."""
    if chosen.command == "status":
        return status(place, chosen.names)
    if chosen.command == "env":
        return env(place, chosen.names)
    if chosen.command == "tools":
        return tools()
    with locked(place.home / "lock"):
        if chosen.command == "down":
            return down(place, chosen.names)
        return up(place, chosen.names, chosen.engine)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; problems become one message and exit code 1."""
    place = Place(Path(__file__).resolve().parents[2])
    try:
        return run(place, arguments(words))
    except (ServiceError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # What was started is on record; the next `up` goes on waiting for it.
        return 130


if __name__ == "__main__":
    sys.exit(main())
