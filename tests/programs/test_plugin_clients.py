"""Programs of the delayed-message plugin, before and after the lines that the guide names."""

from pathlib import Path
from typing import Any

import pytest

from tests.programs.site import Open, Site
from tests.programs.toolchains import REMINDERS

HELD_MS = 100_000
LONG = (pytest.mark.long, pytest.mark.timeout(600))  # Maven, the first time
CLIENTS = [pytest.param(name, marks=LONG if name == "amqp-client" else ()) for name in REMINDERS]


def command(examples: Path, client: str, which: str) -> list[str]:
    language = REMINDERS[client]
    folder = examples / "rabbitmq-plugin" / language.name
    return language.command(folder, f"{which}/{language.file}")


@pytest.fixture
def site(examples: Path, open_site: Open, rabbitmq_url: str, name: str, rabbit: Any) -> Site:
    return open_site(examples / "rabbitmq-plugin", AMQP_URL=rabbitmq_url, EXCHANGE=name)


@pytest.mark.parametrize("client", CLIENTS)
def test_run_program_for_the_plugin_without_it_is_refused_by_the_broker(
    examples: Path, site: Site, client: str
) -> None:
    refused = site.run([*command(examples, client, "before"), "publish", "1000"])
    assert refused.returncode != 0
    assert "unknown exchange type 'x-delayed-message'" in refused.stdout + refused.stderr


@pytest.mark.parametrize("client", CLIENTS)
def test_run_changed_program_gets_each_reminder_when_it_is_due(
    examples: Path, site: Site, client: str
) -> None:
    program = command(examples, client, "after")
    site.duebridge("intake", "declare", "reminders")
    site.worker()
    consumer = site.start([*program, "consume"])
    assert consumer.line() == "waiting"
    sent = {}
    for line in site.call([*program, "publish", "3000", "100", str(HELD_MS), "1500"]).splitlines():
        at, delay, message_id = line.split()
        sent[int(delay)] = (int(at), message_id)
    for delay in (100, 1500, 3000):
        got_at, message_id, *rest = consumer.line().split()
        assert (message_id, " ".join(rest)) == (sent[delay][1], f"a remind after {delay}")
        assert int(got_at) >= sent[delay][0] + delay
