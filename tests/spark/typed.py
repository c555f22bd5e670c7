"""What the pages and the help of the jobs on Spark tell one to type."""

import re

import typer.main

from duebridge_connectors.spark.commands import spark
from tests.support.checkout import ROOT

PAGES = ROOT / "docs" / "spark"
JOBS = typer.main.get_group(spark).commands


def told() -> list[str]:
    """Return every command of a job that a page or a help has, each as one line."""
    texts = [path.read_text() for path in PAGES.glob("*.md")]
    texts += [str(command.epilog) for command in JOBS.values()]
    return sorted({line for text in texts for line in _commands(text)})


def _commands(text: str) -> list[str]:
    lines = re.sub(r"\\\n *", "", text).splitlines()
    found = [line.removeprefix("Example: ").split("  #")[0].strip() for line in lines]
    return [line for line in found if line[:16] == "duebridge spark " and line.split()[2] in JOBS]
