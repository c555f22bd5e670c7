"""The documentation speaks of what exists: links, configurations, metrics and log events."""

import re
from pathlib import Path

import pytest

from duebridge.config.load import load_config_text
from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/README.md")])
PAGES = [
    page for page in PAGES if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
]
RUNBOOKS = [page for page in PAGES if page.parent.name == "runbooks" and page.stem != "README"]
SOURCES = "\n".join(
    path.read_text() for part in ("bridge", "connectors") for path in (ROOT / part).rglob("*.py")
)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
YAML = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def names(pages: list[Path], pattern: str) -> set[str]:
    return {found for page in pages for found in re.findall(pattern, page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_in_a_page_leads_to_a_file(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_whole_configuration_in_a_page_loads(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEBRIDGE_TEST_KAFKA_BOOTSTRAP", "localhost:9092")
    monkeypatch.setenv("RABBIT_URL", "amqp://localhost/")
    for indent, block in YAML.findall(page.read_text()):
        if "version: 1" in block:
            load_config_text(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), page.name)


def test_metric_in_the_docs_is_exposed() -> None:
    documented = names(PAGES, r"`(duebridge_[a-z_]+)")
    stems = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in documented}
    assert stems
    assert {stem for stem in stems if f'"{stem}"' not in SOURCES} == set()


def test_log_event_in_a_runbook_is_logged() -> None:
    documented = names(sorted(ROOT.glob("docs/runbooks/*.md")), r"[Ll]og `([a-z_]+)`")
    assert documented
    assert {event for event in documented if f'"{event}"' not in SOURCES} == set()


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: str(page.stem))
def test_runbook_says_how_it_shows_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    assert 0 < text.find("\n**Signs.**") < text.find("\n**What to do")


def test_path_of_a_test_in_a_page_is_one() -> None:
    paths = names(PAGES, r"`(tests/[a-z0-9_/]+(?:\.\w+)?)[`/]")
    assert paths
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def test_runbook_is_listed_in_their_index() -> None:
    folder = ROOT / "docs" / "runbooks"
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert listed == {page.name for page in folder.glob("*.md")} - {"README.md"}
