"""RabbitMQ beside any other on the machine: own node name, cookie, ports and port mapper (epmd)."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

import packages
from process import is_alive, spawn, wait_until
from state import HOST, Place, Running, Service, is_free, kept_ports, ports

CONFIG = """\
listeners.tcp.1 = {host}:{port}
loopback_users = none
log.console = true
log.console.level = info
log.connection.level = error
"""


def _cookie(data: Path) -> None:
    """Make the cookie: Erlang would, but in a home that is not ours to choose."""
    cookie = data / ".erlang.cookie"
    if not cookie.exists():
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20), "ascii")
        cookie.chmod(0o400)


def _files(data: Path, port: int) -> None:
    (data / "rabbitmq.conf").write_text(CONFIG.format(host=HOST, port=port), "utf-8")
    (data / "enabled_plugins").write_text("[].\n", "ascii")
    (data / "env.conf").write_text("", "ascii")
    for name in ("conf.d", "generated", "schema", "mnesia", "log"):
        (data / name).mkdir(exist_ok=True)
    _cookie(data)


def environment(place: Place, data: Path, kept: dict[str, int]) -> dict[str, str]:
    """Return all that the start script would otherwise take from the system or the user."""
    foreign = ("RABBITMQ_", "ERL_")
    mine = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    names = {
        "NODENAME": f"duebridge-{place.tag}@localhost",
        "NODE_IP_ADDRESS": HOST,
        "NODE_PORT": str(kept["rabbitmq"]),
        "DIST_PORT": str(kept["rabbitmq_dist"]),
        "CONF_ENV_FILE": str(data / "env.conf"),
        "CONFIG_FILE": str(data / "rabbitmq.conf"),
        "CONFIG_FILES": str(data / "conf.d"),
        "ADVANCED_CONFIG_FILE": str(data / "advanced.config"),
        "ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
        "GENERATED_CONFIG_DIR": str(data / "generated"),
        "SCHEMA_DIR": str(data / "schema"),
        "MNESIA_BASE": str(data / "mnesia"),
        "LOG_BASE": str(data / "log"),
        "LOGS": "-",
        "PID_FILE": str(data / "node.pid"),
        "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    mine.update({f"RABBITMQ_{key}": value for key, value in names.items()})
    mine.update(HOME=str(data), ERL_EPMD_PORT=str(kept["epmd"]), ERL_EPMD_ADDRESS=HOST)
    # The start script then becomes the Erlang machine instead of waiting for it:
    # one pid to know, and SIGTERM reaches the node itself, which stops in order.
    mine["RUNNING_UNDER_SYSTEMD"] = "true"
    mine.pop("NOTIFY_SOCKET", None)
    return mine


def end_leftovers(place: Place) -> None:
    """End the epmd that a node starts when it misses ours: only its port still tells."""
    port = kept_ports(place).get("epmd")
    if port is not None and not is_free(port):
        env = {**os.environ, "ERL_EPMD_PORT": str(port)}
        subprocess.run([packages.epmd(), "-kill"], capture_output=True, env=env, check=False)


def _start_port_mapper(data: Path, log: Path, port: int, env: dict[str, str]) -> Running:
    command = [packages.epmd(), "-port", str(port), "-address", HOST]
    mapper = spawn("epmd", command, log=log, cwd=data, env=env)
    # Before the node looks for it: otherwise the node would start its own.
    wait_until(lambda: not is_free(port) or not is_alive(mapper), 10.0)
    return mapper


def start(place: Place) -> Service:
    """Start a port mapper and a node that registers with it."""
    kept = ports(place, ["rabbitmq", "rabbitmq_dist", "epmd"])
    data, log = place.data("rabbitmq"), place.log("rabbitmq")
    _files(data, kept["rabbitmq"])
    env = environment(place, data, kept)
    mapper = _start_port_mapper(data, log, kept["epmd"], env)
    node = spawn("rabbitmq", [packages.rabbitmq()], log=log, cwd=data, env=env)
    return Service(
        "rabbitmq", HOST, kept["rabbitmq"], str(log), str(data), process=node, helpers=(mapper,)
    )
