"""RabbitMQ beside any other on the machine: own node name, cookie, ports and port mapper (epmd)."""

import os
import secrets
import subprocess
from pathlib import Path

import packages
from process import spawn, wait_until
from state import HOST, Place, Service, is_free, kept_ports, ports

EPMD_SECONDS = 10.0
CONFIG = """\
listeners.tcp.1 = {host}:{port}
loopback_users = none
log.console = true
log.console.level = info
log.connection.level = error
"""


def _files(data: Path, port: int) -> None:
    (data / "rabbitmq.conf").write_text(CONFIG.format(host=HOST, port=port), "utf-8")
    (data / "enabled_plugins").write_text("[].\n", "ascii")
    (data / "env.conf").write_text("", "ascii")
    for name in ("conf.d", "generated", "schema", "mnesia", "log"):
        (data / name).mkdir(exist_ok=True)
    # Erlang would make the cookie, but in a home that is not ours to choose.
    if not (cookie := data / ".erlang.cookie").exists():
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20), "ascii")
        cookie.chmod(0o400)


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
    # The start script becomes the Erlang machine instead of waiting for it: one pid to know, and
    # SIGTERM reaches the node itself, which stops in order.
    mine["RUNNING_UNDER_SYSTEMD"] = "true"
    mine.pop("NOTIFY_SOCKET", None)
    return mine


def start_port_mapper(env: dict[str, str], port: int) -> None:
    """Start an epmd and wait until it listens: a node that starts its own may ask it too soon."""
    subprocess.run([packages.which("epmd"), "-daemon"], env=env, check=True)
    wait_until(lambda: not is_free(port), EPMD_SECONDS)


def end_port_mapper(place: Place) -> None:
    """End the node's epmd, once the node is gone."""
    port = kept_ports(place).get("epmd")
    if port is not None and not is_free(port):
        env = {**os.environ, "ERL_EPMD_PORT": str(port)}
        kill = [packages.which("epmd"), "-kill"]
        subprocess.run(kill, capture_output=True, env=env, check=False)


def start(place: Place) -> Service:
    """Start a node."""
    kept, data = ports(place, ["rabbitmq", "rabbitmq_dist", "epmd"]), place.data("rabbitmq")
    _files(data, kept["rabbitmq"])
    env = environment(place, data, kept)
    start_port_mapper(env, kept["epmd"])
    return spawn(place, "rabbitmq", kept["rabbitmq"], [packages.rabbitmq()], env)
