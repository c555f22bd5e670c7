"""`duebridge acl`: what it prints makes users that can do their work."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.command import Command
from tests.support.servers import redis_server

CONFIG = """\
version: 1
store: {{url: "{url}", namespace: billing.eu}}
brokers:
  orders:
    type: kafka
    bootstrap_servers: ["k:9092"]
    options: {{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: shop,
      sasl.password: canary}}
  billing: {{type: rabbitmq, url: "amqp://clerk:canary@r/eu%2Fde"}}
  here: {{type: memory}}
routes:
  plain: {{target: {{broker: here, topic: t}}}}
  o: {{target: {{broker: orders, topic: due}}, dead_letter: {{broker: orders, topic: dlt}},
    allow_targets: [{{broker: orders, topic: "o-*"}}, {{broker: orders, topic: "*-x"}}]}}
  r: {{target: {{broker: billing, exchange: ex.a, routing_key: k}},
    dead_letter: {{broker: billing, exchange: "", routing_key: q}}}}
"""
OPERATIONS = "--operation Write --operation Describe --operation DescribeConfigs"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server(tmp_path_factory.mktemp("redis")) as port:
        with redis.Redis(port=port) as admin:
            admin.config_set("appendonly", "yes")
        yield port


@pytest.fixture
def duebridge(tmp_path: Path, port: int) -> Command:
    url = f"redis://team%2Fb:canary%40pw@127.0.0.1:{port}/0"
    return Command(tmp_path, url, CONFIG)


def test_acl_for_redis_cli_makes_a_user_that_schedules(duebridge: Command, port: int) -> None:
    printed = duebridge("acl").out.splitlines()
    (line,) = (line for line in printed if line.startswith("ACL SETUSER"))
    words: list[Any] = line.replace(">PASSWORD", ">canary@pw").split()
    with redis.Redis(port=port) as admin:
        admin.execute_command(*words)
    done = duebridge("send", "plain", "x", "--delay", "1h")
    assert done.code == 0, done
    assert duebridge("send", "plain", "x", "--delay", "1h").code == 0


def test_acl_for_a_file_lets_a_server_start(duebridge: Command, tmp_path: Path) -> None:
    roles = ("operator", "readonly")
    lines = [duebridge("acl", "--role", role, "--acl-file").out for role in roles]
    file = tmp_path / "users.acl"
    file.write_text("".join(lines).replace(">PASSWORD", ">pw"))
    with redis_server(tmp_path, "--aclfile", str(file)) as port, redis.Redis(port=port) as admin:
        assert {"team/b", "team/b-readonly"} <= set(admin.acl_users())


def test_acl_of_brokers_names_the_targets_of_every_route(duebridge: Command) -> None:
    printed = duebridge("acl").out.splitlines()
    kafka = f"kafka-acls --bootstrap-server k:9092 --add --allow-principal User:shop {OPERATIONS}"
    assert printed[printed.index("# Broker orders: to deliver, and to check the targets") :] == [
        "# Broker orders: to deliver, and to check the targets",
        f"{kafka} --topic due",
        f"{kafka} --topic dlt",
        f"{kafka} --resource-pattern-type prefixed --topic o-",
        "# topic *-x: an ACL knows only names and prefixes; grant each topic",
        "# Broker billing: to deliver, and to check the targets",
        r"rabbitmqctl set_permissions -p eu/de clerk '^$' '^(ex\.a|amq\.default)$' '^$'",
    ]


def test_acl_of_addresses_given_as_references_prints_what_they_stand_for(
    duebridge: Command,
) -> None:
    text = CONFIG.replace('"k:9092"', '"${{KAFKA:-kafka:9092}}"')
    text = text.replace("amqp://clerk:canary@r/eu%2Fde", "${{RABBIT:-amqp://me:canary@r/eu}}")
    duebridge.file.write_text(text.format(url=duebridge.url))
    printed = duebridge("acl").out
    assert "--bootstrap-server kafka:9092 --add" in printed
    assert "set_permissions -p eu me" in printed
    assert "canary" not in printed
    named = text.replace(":-kafka:9092", "").replace(":-amqp://me:canary@r/eu", "")
    named = named.replace("sasl.password: canary", 'sasl.password: "${{file:/none}}"')
    duebridge.file.write_text(named.format(url=duebridge.url))
    printed = duebridge("acl").out
    assert "--bootstrap-server HOST:PORT --add --allow-principal User:shop" in printed
    assert "set_permissions -p / USER" in printed


def test_acl_prints_no_password_and_asks_no_server(tmp_path: Path) -> None:
    duebridge = Command(tmp_path, "redis://u:canary@nowhere.invalid:1/0", CONFIG)
    for words in (["acl"], ["acl", "--role", "readonly"], ["acl", "--acl-file"]):
        done = duebridge(*words)
        assert done.code == 0
        assert "canary" not in done.out + done.err
        assert "billing.eu" in done.out


def test_acl_of_a_durability_that_syncs_lets_the_start_read_the_settings(
    tmp_path: Path, port: int
) -> None:
    config = CONFIG.replace("namespace:", "durability: fsync, namespace:")
    duebridge = Command(tmp_path, f"redis://syncs:pw@127.0.0.1:{port}/0", config)
    with redis.Redis(port=port) as admin:
        admin.config_set("appendfsync", "always")
        words: list[Any] = duebridge("acl", "--acl-file").out.replace(">PASSWORD", ">pw").split()
        admin.execute_command("ACL", "SETUSER", *words[1:])
        assert duebridge("send", "plain", "x", "--delay", "1h").code == 0
        admin.execute_command("ACL", "SETUSER", "syncs", "-config")
        assert "CONFIG GET is refused" in duebridge("send", "plain", "x", "--delay", "1h").err
        admin.config_set("appendfsync", "everysec")


def test_acl_of_another_namespace_and_user_has_those(duebridge: Command) -> None:
    printed = duebridge("acl", "--acl-file", "--namespace", "other", "--user", "me").out
    assert printed.startswith("user me on >PASSWORD resetkeys ~{other:*}:* ~{other}:* ")


@pytest.mark.parametrize(
    ("option", "given"),
    [("--namespace", "a*"), ("--namespace", ""), ("--user", "a b"), ("--user", "a\nACL")],
)
def test_acl_of_an_invalid_name_is_refused(option: str, given: str, duebridge: Command) -> None:
    done = duebridge("acl", option, given)
    assert (done.code, done.out) == (2, "")
    assert f"{option.removeprefix('--')}: expected" in done.err
