"""A page for every job on Spark, and what it says is what the command and the package have."""

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.core import TyperCommand
from typer.testing import CliRunner

from duebridge.cli.app import app
from duebridge_connectors.spark.options import JournalOptions, ReadOptions, WriteOptions
from duebridge_connectors.spark.schema import DECODED, JOURNAL
from duebridge_connectors.spark.transforms.verdict import BROKEN, KINDS
from tests.conftest import ROOT
from tests.spark.typed import JOBS, PAGES, told

OF_ALL = {"--spark", "--output", "--config"}  # told of once, in running.md
OF_OTHERS = {
    "intake": {"--packages", "--rows"},  # of spark-submit, and of the bench
    "demote": {"--state"},  # of `duebridge ls`
    "reconcile": {"--every"},  # of the job journal
}
CONFIG = """
version: 1
brokers: {orders: {type: kafka, bootstrap_servers: ["localhost:9092"]}}
routes: {reminders: {target: {broker: orders, topic: reminders}}}
"""


def page(job: str) -> str:
    return (PAGES / f"{job}.md").read_text()


def flags(command: TyperCommand) -> list[set[str]]:
    """Return the long names of each option."""
    found = ({*each.opts, *each.secondary_opts} for each in command.params)
    return [long for each in found if (long := {name for name in each if name[:2] == "--"})]


def test_every_job_has_a_page_that_the_index_leads_to() -> None:
    index = (PAGES / "README.md").read_text()
    assert {job for job in JOBS if f"[`duebridge spark {job}`]({job}.md)" not in index} == set()
    assert {path.stem for path in PAGES.glob("*.md")} == {*JOBS, "README", "running"}


@pytest.mark.parametrize("job", JOBS)
def test_page_begins_with_one_picture_of_the_flow(job: str) -> None:
    fences = re.findall(r"^ *```(\w*)$", page(job), re.M)[::2]
    assert fences.count("") == 1
    title, picture = re.match(r"# (.+)\n\n```\n(.*?)```\n", page(job), re.S).groups()  # type: ignore[union-attr]
    assert "\n" not in title
    assert set("▶▼") & set(picture)


@pytest.mark.parametrize("job", JOBS)
def test_page_tells_of_every_option_by_the_name_it_has(job: str) -> None:
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", page(job)))
    own = [names for names in flags(JOBS[job]) if not names & (OF_ALL | {"--help"})]
    assert [names for names in own if not names & said] == []
    assert said - OF_OTHERS.get(job, set()) - set().union(*flags(JOBS[job])) == set()


def test_page_of_running_tells_of_the_options_that_all_jobs_have() -> None:
    assert {name for name in OF_ALL if f"`{name}" not in page("running")} == set()


@pytest.mark.parametrize("line", told())
def test_command_in_a_page_or_a_help_is_understood(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duebridge.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    # Spark is only looked for once all the words are understood
    monkeypatch.setitem(sys.modules, "duebridge_connectors.spark.session", None)
    outcome = CliRunner().invoke(app, shlex.split(line)[1:])
    assert "spark: expected the Python package" in str(outcome.exception), outcome.output


@pytest.mark.parametrize("job", JOBS)
def test_page_says_how_a_program_calls_the_job(job: str) -> None:
    assert f"duebridge_connectors.spark.jobs.{job}" in page(job)
    assert f"run_{job}(" in page(job)


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_name_in_python_that_a_page_says_exists(path: Path) -> None:
    text = path.read_text()
    dotted = set(re.findall(r"\b((?:connectors\.spark|bridge)(?:\.\w+)+)\(", text))
    for module, names in re.findall(r"^from ([\w.]+) import (.+)$", text, re.M):
        dotted |= {f"{module}.{name.strip()}" for name in names.split(",")}
    for name in dotted:
        module, _, rest = name.rpartition(".")
        assert hasattr(import_module(module), rest), name


def test_page_of_the_source_has_every_option_and_column() -> None:
    text = " ".join((ROOT / "connectors" / "spark" / "README.md").read_text().split())
    options = {
        name
        for each in (WriteOptions, ReadOptions, JournalOptions)
        for name in each.__struct_fields__
    }
    assert {name for name in options if f"`{name}`" not in text} == set()
    for columns in (DECODED, JOURNAL):
        assert f"Columns: `{' '.join(columns.names)}`" in text


def test_page_of_reconcile_has_a_word_for_each_kind_of_violation_and_which_break() -> None:
    rows = re.findall(r"^\| (\w+) \| .* \| (yes|no)\b.*\|$", page("reconcile"), re.M)
    assert {name for name, _ in rows} == set(KINDS)
    assert {name for name, breaks in rows if breaks == "yes"} == set(BROKEN)
