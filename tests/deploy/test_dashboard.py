"""The dashboard on a real Prometheus that scrapes a real worker: every query answers."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy.dashboard.panels import DASHBOARD, Panel, panels
from deploy.dashboard.render import render
from deploy.dashboard.server import Prometheus, prometheus

from tests.acceptance.command import Command, embedded_command, wait_until
from tests.conftest import ROOT
from tests.deploy.promtool import program, promtool

QUESTIONS = ["Is it late?", "Is it stuck?", "Who is at fault?"]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
PANELS = [panel for panel in panels() if panel.kind != "row"]

every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("worker")) as command:
        yield command


@pytest.fixture(scope="module")
def scraped(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has seen a worker deliver for a while."""
    server = program("prometheus")
    command("send", "invoices", "late", "--delay", "1ms", "--expires", "2ms")
    process = command.start("run", "--health-port", "0")
    try:
        assert process.stderr is not None
        said = (json.loads(line) for line in iter(process.stderr.readline, b""))
        port = next(line["port"] for line in said if line["event"] == "health")
        folder = tmp_path_factory.mktemp("prometheus")
        with prometheus(server, folder, [f"127.0.0.1:{port}"]) as source:
            wait_until(lambda: deliver_until_seen(command, source), "deliveries to be seen")
            yield source
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def deliver_until_seen(command: Command, source: Prometheus) -> bool:
    """Deliver something now, so that there are rates; then tell whether they are seen."""
    traced = f"traceparent=00-{TRACE}-00f067aa0ba902b7-01"
    command("send", "reminders", "hello", "--delay", "1ms", "--header", traced)
    seen = "rate(duebridge_lateness_seconds_count[20s]) > 0"
    return bool(source.instant(seen) and source.instant("duebridge_store_memory_used_bytes"))


@every_panel
def test_query_of_a_panel_is_taken_and_answers(panel: Panel, scraped: Prometheus) -> None:
    now = time.time()
    for target in panel.targets:
        found = scraped.over(target.query, now - 60, now, 1)
        assert found, target
        assert all(set(re.findall(r"\{\{(\w+)\}\}", target.legend)) <= set(each["metric"])
                   for each in found), target  # fmt: skip


def test_alerts_are_loaded_and_healthy_and_none_fires(scraped: Prometheus) -> None:
    wait_until(lambda: {rule["health"] for rule in rules(scraped)} == {"ok"}, "an evaluation")
    assert [rule["name"] for rule in rules(scraped) if rule["state"] == "firing"] == [
        "DuebridgeDead"
    ]


def rules(source: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in source.get("rules")["groups"] for rule in group["rules"]]


def test_exemplar_of_a_lateness_leads_to_its_trace(scraped: Prometheus) -> None:
    now = time.time()
    asked = {"query": "duebridge_lateness_seconds_bucket", "start": now - 60, "end": now + 1}
    found = scraped.get("query_exemplars", asked)
    assert {each["labels"]["trace_id"] for one in found for each in one["exemplars"]} == {TRACE}


def test_render_draws_every_panel(scraped: Prometheus) -> None:
    now = time.time()
    page = render(scraped, now - 60, now)
    assert re.findall("<h2>(.*?)</h2>", page) == [panel.title for panel in panels()]
    assert "No data" not in page
    assert page.count("<path") >= len([panel for panel in PANELS if panel.kind == "timeseries"])


def test_queries_are_what_promtool_takes(tmp_path: Path) -> None:
    queries = [target.query for panel in PANELS for target in panel.targets]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", file)


def test_dashboard_asks_three_questions_on_one_screen() -> None:
    assert [panel.title for panel in panels() if panel.kind == "row"] == QUESTIONS
    blamed = [panel.title.partition(":")[0] for panel in panels()][-3:]
    assert blamed == ["Us", "Redis", "Brokers"]


def test_dashboard_fits_one_screen_and_no_panel_covers_another() -> None:
    taken = set()
    for panel in panels():
        at = panel.place
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel.title
        taken |= cells
    assert max(x for x, _ in taken) < 24
    assert max(y for _, y in taken) <= 25, "25 rows are a screen of 1080 lines"


def test_panels_ask_only_for_what_is_documented() -> None:
    text = " ".join(target.query for panel in PANELS for target in panel.targets)
    named = {re.sub(r"_(bucket|count)$", "", name) for name in re.findall(r"duebridge_\w+", text)}
    assert named <= set(re.findall(r"^\| `(duebridge_\w+)`", PAGE, re.MULTILINE))


def test_every_panel_says_what_it_shows_and_comes_from_the_chosen_source() -> None:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        sources = [panel["datasource"], *(each["datasource"] for each in panel["targets"])]
        assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in sources)
