#!/usr/bin/env python3
"""Real Redis, RabbitMQ and Apache Kafka for this checkout: up, down, status, env, tools.

Standard library only: it runs before there is any virtual environment.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import docker_engine
import kafka_server
import packages
import rabbitmq_server
from process import answers, end, is_alive, spawn, tail
from state import HOST, Place, Service, ServiceError, load, locked, ports, save

DEADLINE_SECONDS = 120.0
VARIABLES = {
    "redis": "DUEBRIDGE_TEST_REDIS_URL",
    "rabbitmq": "DUEBRIDGE_TEST_RABBITMQ_URL",
    "kafka": "DUEBRIDGE_TEST_KAFKA_BOOTSTRAP",
}
# As a delay store needs it: every write in the append-only file, nothing evicted.
REDIS = {"protected-mode": "no", "appendonly": "yes", "save": "", "maxmemory-policy": "noeviction"}


def start_redis(place: Place) -> Service:
    """Start Redis."""
    port = ports(place, ["redis"])["redis"]
    settings = {"bind": HOST, "port": str(port), **REDIS}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return spawn(place, "redis", port, [packages.which("redis-server"), *words])


# The slow starters first: they come up while the next one is being started.
STARTERS: dict[str, Callable[[Place], Service]] = {
    "rabbitmq": rabbitmq_server.start,
    "kafka": kafka_server.start,
    "redis": start_redis,
}


def is_gone(service: Service) -> bool:
    """Tell whether waiting is useless; a native one that lives may just not answer yet."""
    is_ours = service.started_by_us and service.engine == "native"
    return not (is_alive(service) if is_ours else answers(service))


def choose_engine(wanted: str | None, names: Sequence[str]) -> str:
    """Prefer native, installing what it needs; else Docker; else say the line to type."""
    absent: Sequence[str] = ["docker"]
    if wanted != "docker" and Path("/proc/self/stat").exists():  # tells our processes from others
        absent = packages.missing(names)
        if absent and packages.can_install():
            packages.install(absent)
            absent = packages.missing(names)
    if absent and (wanted == "native" or not docker_engine.is_there()):
        raise ServiceError(packages.line_to_type(absent))
    return "docker" if absent else "native"


def stop(place: Place, services: Sequence[Service]) -> None:
    """Ask all of them first, then wait: they end side by side."""
    end([service for service in services if service.engine == "native"])
    for service in services:
        if service.engine == "docker":
            docker_engine.stop(place, service.name)
        elif service.name == "rabbitmq":
            rabbitmq_server.end_port_mapper(place)


def wait_for(place: Place, service: Service, began: float) -> bool:
    """Wait until it answers; False, with the end of its log shown, when it does not."""
    is_native = service.engine == "native"
    while not answers(service):
        late = time.monotonic() - began > DEADLINE_SECONDS
        if late or (is_native and is_gone(service)):
            why = f"no answer in {DEADLINE_SECONDS:.0f} s" if late else "ended"
            log = tail(Path(service.log)) if is_native else docker_engine.log(place, service.name)
            print(f"{service.name:<9} did not start: {why}; its log:\n{log}", file=sys.stderr)
            return False
        time.sleep(0.05)
    return True


def start_the_gone(place: Place, chosen: argparse.Namespace) -> list[str]:
    """Start what does not run; each is on record at once, should we be interrupted."""
    services = load(place)
    gone = [name for name in STARTERS if name in chosen.names]
    gone = [name for name in gone if name not in services or is_gone(services[name])]
    old = [services.pop(name) for name in gone if name in services]
    if foreign := [service for service in old if not service.started_by_us]:
        raise ServiceError(f"{foreign[0].name} at {foreign[0].address} is not ours to start")
    engine = choose_engine(chosen.engine, gone) if gone else ""
    stop(place, old)
    for name in gone:
        is_docker = engine == "docker"
        fresh = docker_engine.start(place, name) if is_docker else STARTERS[name](place)
        services[name] = replace(fresh, owner=chosen.owner)
        save(place, services)
    # Asked for by two: neither may stop it alone.
    for name in set(chosen.names) - set(gone):
        services[name] = replace(services[name], owner="")
    save(place, services)
    return gone


def up(place: Place, chosen: argparse.Namespace) -> int:
    """Start what does not run, wait for all, say where each one is."""
    fresh = start_the_gone(place, chosen)
    # Counted from here: fetching packages and jars takes as long as the network does.
    began, services = time.monotonic(), load(place)
    failed = [name for name in chosen.names if not wait_for(place, services[name], began)]
    for name in [name for name in chosen.names if name not in failed]:
        found = services[name]
        state = f"started ({found.engine})" if name in fresh else "already running"
        print(f"{name:<9} {state}: {found.address}  log: {found.log}", flush=True)
    stop(place, [services.pop(name) for name in failed])
    save(place, services)
    return int(bool(failed))


def down(place: Place, chosen: argparse.Namespace) -> int:
    """Stop what this checkout started, with an owner only what is that owner's."""
    services = load(place)
    found = [services[name] for name in chosen.names if name in services]
    mine = [each for each in found if each.started_by_us and chosen.owner in ("", each.owner)]
    stop(place, mine)
    for service in found:
        told = f"stopped; its data stay in {service.data}" if service in mine else "left alone"
        print(f"{service.name:<9} {told}", flush=True)
    save(place, {name: each for name, each in services.items() if each not in mine})
    return 0


def status(place: Place, chosen: argparse.Namespace) -> int:
    """Print a table of the services."""
    services, row = load(place), "{:<9} {:<6} {:<7} {:<8} {:<45} {}"
    running = [name for name in chosen.names if name in services and answers(services[name])]
    print(row.format("service", "state", "with", "pid", "address", "log"))
    for name in chosen.names:
        found, state = services.get(name), "up" if name in running else "down"
        cells = (found.engine, found.pid, found.address, found.log) if found else "----"
        print(row.format(name, state, *cells))
    return int(running != chosen.names)


def env(place: Place, chosen: argparse.Namespace) -> int:
    """Print the addresses as a shell takes them."""
    services = load(place)
    for name in filter(services.get, chosen.names):
        print(f"export {VARIABLES[name]}={services[name].address}")
    missing = [name for name in chosen.names if name not in services]
    if missing:
        print(f"not up: {', '.join(missing)}; type: make services-up", file=sys.stderr)
    return int(bool(missing))


def tools(_place: Place, _chosen: argparse.Namespace) -> int:
    """Install the programs that tests call; without them those tests are skipped."""
    if absent := packages.missing(["tools"]):
        if packages.can_install():
            packages.install(absent)
        else:
            names = " and ".join(absent)
            print(f"{names}: their tests are skipped; {packages.line_to_type(absent)}")
    return 0


COMMANDS = {"up": up, "down": down, "status": status, "env": env, "tools": tools}


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="services.py", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--with", dest="engine", choices=["native", "docker"])
    parser.add_argument("--only", default=",".join(VARIABLES), metavar="redis,kafka,rabbitmq")
    parser.add_argument("--owner", default="", help="of up: who alone may `down --owner` it")
    chosen = parser.parse_args()
    if unknown := set(chosen.only.split(",")) - set(STARTERS):
        parser.error(f"no such service: {', '.join(sorted(unknown))}")
    chosen.names = [name for name in VARIABLES if name in chosen.only.split(",")]
    return chosen


def main() -> int:
    """Run the command line; problems become one message and exit code 1."""
    chosen, place = arguments(), Place(Path(__file__).resolve().parents[2])
    try:
        if chosen.command not in ("up", "down"):
            return COMMANDS[chosen.command](place, chosen)
        with locked(place.home / "lock"):  # one that changes the state runs alone
            return COMMANDS[chosen.command](place, chosen)
    except (ServiceError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        # What was started is on record; the next `up` goes on waiting for it.
        return 130


if __name__ == "__main__":
    sys.exit(main())
