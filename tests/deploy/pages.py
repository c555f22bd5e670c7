"""The commands that the pages tell an operator to type, out of the pages themselves."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.checkout import ROOT, downloaded, missing

PAGES = (ROOT / "docs" / "kubernetes.md", ROOT / "deploy" / "helm" / "duebridge" / "README.md")
TOPICS = "org.apache.kafka.tools.TopicCommand"


def block(page: Path, begins: str, heading: str = "## Install") -> str:
    """Return the block of a page that begins so, the first one after a heading."""
    section = page.read_text("utf-8").partition(heading)[2]
    found = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    return next(each for each in found if each.startswith(begins))


def kafka_topics(words: list[str]) -> str:
    """Run what kafka-topics.sh runs; return what it prints, or raise with it."""
    java = shutil.which("java") or missing("java", "run `make services-up`")
    command = [java, "-cp", downloaded("kafka-tools"), TOPICS, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
