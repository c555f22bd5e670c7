"""The commands of docs/kubernetes.md, typed as they stand but for addresses and the namespace."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "kubernetes.md"


def block(kind: str) -> str:
    """Return the first block of a kind in the section about installing."""
    section = PAGE.read_text("utf-8").partition("## Install")[2]
    found = re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


def typed(bridge: Bridge, line: str, values: Path) -> str:
    """Type a line; raises `Refused`."""
    program, *words = shlex.split(line)
    for place in [each for each, word in enumerate(words) if word == "-n"]:
        words[place + 1] = bridge.kube.namespace
    words = [str(values) if word == "values.yaml" else word for word in words]
    return bridge.kube.helm(*words) if program == "helm" else bridge.kube.kubectl(*words)


def test_commands_of_the_page_do_what_it_says(bridge: Bridge) -> None:
    text = block("yaml").replace("redis://redis.example:6379/0", bridge.stack.redis_url)
    values = yaml.safe_load(text.replace("kafka.example:9092", bridge.stack.kafka))
    values["config"]["store"]["namespace"] = bridge.name
    values["config"]["routes"]["reminders"]["target"]["topic"] = bridge.name
    values["image"] = bridge.values[
        "image"
    ]  # the first two lines make it, and give it to the nodes
    lines = block("sh").splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("helm install")
    try:
        for line in lines[2:4]:
            typed(bridge, line, bridge.written(values))
        events = lambda: typed(bridge, lines[4], bridge.written(values))  # noqa: E731
        until(lambda: "delivered" in events(), "the message", 30)
    finally:
        bridge.kube.helm("uninstall", "duebridge", "--ignore-not-found", "--wait")
