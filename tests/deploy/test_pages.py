"""What the pages tell to type before the chart is installed; the rest runs on a cluster."""

import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from kafka import KafkaAdminClient

from duebridge.http.tokens import digest_of, read_tokens
from tests.deploy.chart import Chart, objects, one, values_of
from tests.deploy.pages import PAGES, block, kafka_topics


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_first_command_of_a_page_makes_the_topic(kafka_bootstrap: str, page: Path) -> None:
    line = block(page, "kafka-topics.sh").splitlines()[0]
    topic = f"pages-{uuid4()}"
    given = line.replace("kafka.example:9092", kafka_bootstrap).replace("reminders", topic)
    program, *words = shlex.split(given)
    assert program == "kafka-topics.sh"
    kafka_topics(words)
    with closing(KafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        assert topic in admin.list_topics()
        admin.delete_topics([topic])


@pytest.mark.parametrize("account", [(), ("--set=serviceAccount.create=false",)])
def test_line_of_the_page_renders_the_check_whoever_makes_its_account(
    chart: Chart, account: tuple[str, ...]
) -> None:
    """What fails gives kubectl nothing to apply, and the wait after it finds no Job."""
    lines = block(PAGES[0], "kubectl -n duebridge delete", "## Many releases")
    line = next(each for each in lines.replace("\\\n", "").splitlines() if "templates/" in each)
    program, *words = shlex.split(line.partition(" | ")[0])
    assert program == "helm"
    words[words.index("values.yaml")] = str(values_of("kafka"))
    rendered = list(objects(chart.run(*words, *account)))
    assert one(rendered, "Job", "duebridge-check")
    accounts = [each for each in rendered if each["kind"] == "ServiceAccount"]
    assert bool(accounts) is not bool(account)


def test_lines_of_the_page_make_a_token_that_the_console_takes(
    tmp_path: Path, chart: Chart
) -> None:
    made = block(PAGES[0], "docker run --rm", "## The console").splitlines()
    lines, create = made[:2], shlex.split(made[2])
    image, words = lines[0].split(" token ")
    assert image == "docker run --rm localhost/duebridge:0.2.0"
    lines[0] = f"{sys.executable} -m duebridge token {words}"
    typed = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert typed.returncode == 0, typed.stderr
    [token] = read_tokens((tmp_path / "tokens.yaml").read_text("utf-8"))
    secret = (tmp_path / "token.txt").read_text("utf-8").splitlines()[0]
    assert (token.name, token.sha256) == ("ops", digest_of(secret))
    values = tmp_path / "values.yaml"
    values.write_text(block(PAGES[0], "serve:", "## The console"), "utf-8")
    given = yaml.safe_load(values.read_text("utf-8"))
    assert given["secrets"]["files"]["http"]["secret"] == create[create.index("generic") + 1]
    rendered = chart.template("-f", str(values_of("kafka")), "-f", str(values))
    service = one(rendered, "Service", "demo-duebridge-http")
    forward = block(PAGES[0], "kubectl -n duebridge port-forward", "## The console")
    assert forward.split(":")[-1].strip() == str(service["spec"]["ports"][0]["port"])
