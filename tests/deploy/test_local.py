"""The local stack: a valid file, the chart's dashboard and alerts, targets that are made.

Also `make services-up`: it starts a service once, restarts a dead one, and leaves nothing behind.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import yaml
from kafka.admin import KafkaAdminClient

from duebridge.config.load import load_config
from tests.support.checkout import ROOT, missing
from tests.support.servers import is_alive, wait_until

COMPOSE = ROOT / "deploy" / "compose"
FILES = [COMPOSE / "compose.yaml", ROOT / "deploy" / "local" / "compose.yaml"]
CHART = ROOT / "deploy" / "helm" / "duebridge" / "files"
CONFIG = COMPOSE / "config" / "duebridge.yaml"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def mounts(services: dict[str, Any]) -> dict[str, str]:
    """What is mounted from this checkout, by its place in a container."""
    given = [each for service in services.values() for each in service.get("volumes", [])]
    pairs = [each.removesuffix(":ro").split(":") for each in given if each.startswith(".")]
    return {inside: outside for outside, inside in pairs}


def test_compose_config_of_docker_accepts_the_file() -> None:
    docker = shutil.which("docker")
    asked = [str(docker), "compose", "version"]
    if docker is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    config = [docker, "compose", "-f", str(FILES[0]), "config", "--format", "json"]
    done = subprocess.run(config, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == set(read(FILES[0])["services"])


def test_stack_has_the_services_of_local_and_all_that_is_mounted_exists() -> None:
    services, local = read(FILES[0])["services"], read(FILES[1])["services"]
    extended = {name for name, each in services.items() if "extends" in each}
    assert extended == set(local)
    assert set(services) - extended == {"targets", "worker", "prometheus", "grafana"}
    assert set(read(FILES[1])["volumes"]) <= set(read(FILES[0])["volumes"])
    found = {inside: (COMPOSE / outside).resolve() for inside, outside in mounts(services).items()}
    assert [path for path in found.values() if not path.exists()] == []
    assert found["/etc/duebridge/dashboard.json"] == CHART / "dashboard.json"
    assert found["/etc/duebridge/alerts.yaml"] == CHART / "alerts.yaml"


def test_every_address_of_the_configuration_is_given_in_containers() -> None:
    named = set(re.findall(r"\$\{(\w+):-", CONFIG.read_text("utf-8")))
    services = read(FILES[0])["services"]
    given = services["worker"]["environment"]
    assert named == set(given) == set(services["targets"]["environment"])
    for host in ("redis", "kafka", "rabbitmq"):
        assert any(host in value for value in given.values())


def test_prometheus_asks_the_workers_and_grafana_asks_prometheus() -> None:
    prometheus = read(COMPOSE / "prometheus" / "prometheus.yml")
    (scraped,) = prometheus["scrape_configs"][0]["dns_sd_configs"]
    assert (scraped["names"], scraped["port"]) == (["worker"], 8080)
    assert prometheus["rule_files"] == ["/etc/duebridge/alerts.yaml"]
    provisioned = COMPOSE / "grafana" / "provisioning"
    (source,) = read(provisioned / "datasources" / "prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = read(provisioned / "dashboards" / "duebridge.yaml")["providers"]
    assert provider["options"]["path"] == "/etc/duebridge"


def test_make_targets_makes_what_routes_name_and_twice_changes_nothing(
    kafka_bootstrap: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    text, config = CONFIG.read_text("utf-8"), tmp_path / "duebridge.yaml"
    config.write_text(re.sub("reminders|invoices", rf"{tmp_path.name}-\g<0>", text), "utf-8")
    addresses = {"KAFKA_BOOTSTRAP": kafka_bootstrap, "RABBIT_URL": rabbitmq_url}
    command = [sys.executable, "-W", "ignore", str(COMPOSE / "config" / "make_targets.py")]
    variables = os.environ | addresses | {"DUEBRIDGE_CONFIG": str(config)}
    made = [
        subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert made[1].splitlines()[0] == "events: nothing to make"
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        for route in load_config(config).routes.values():
            for target in filter(None, (route.target, route.dead_letter)):
                if target.topic:
                    assert target.topic in admin.list_topics()
                    admin.delete_topics([target.topic])
                else:
                    channel.queue_declare(target.routing_key, passive=True)
                    channel.queue_delete(target.routing_key)
    admin.close()


Services = Callable[..., tuple[int, str]]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Runs the program, in a checkout of its own, on Redis alone; stopped at the end."""
    if shutil.which("redis-server") is None:
        missing("redis-server", "install Redis 7")
    shutil.copytree(ROOT / "deploy" / "local", tmp_path / "deploy" / "local")

    def run(command: str, owner: str = "") -> tuple[int, str]:
        words = [sys.executable, "deploy/local/services.py", command, "--only", "redis"]
        words += ["--owner", owner]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    yield run
    run("down")


def entry(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / ".services" / "services.json").read_text("utf-8"))["redis"])


def test_up_and_down_of_redis_starts_once_restarts_what_died_and_leaves_nothing(
    services: Services, tmp_path: Path
) -> None:
    assert "started" in services("up")[1]
    first = entry(tmp_path)
    assert "already running" in services("up")[1]
    assert entry(tmp_path) == first
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: not is_alive(first["pid"]), "the end of redis-server")
    assert services("status")[0] == 1
    assert "started" in services("up")[1]
    second = entry(tmp_path)
    assert services("env") == (0, f"export DUEBRIDGE_TEST_REDIS_URL={first['url']}\n")
    assert "stopped" in services("down")[1]
    assert not is_alive(second["pid"])


def test_down_of_an_owner_stops_only_what_it_alone_asked_for(services: Services) -> None:
    services("up", "demo")
    assert "left alone" in services("down", "other")[1]
    assert "stopped" in services("down", "demo")[1]
    services("up", "demo")
    assert "already running" in services("up")[1]
    assert "left alone" in services("down", "demo")[1]
    assert services("status")[0] == 0
