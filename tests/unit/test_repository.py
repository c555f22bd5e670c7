"""The repository: links and configurations of its pages, the API page, the lock file, imports."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from duebridge.config.load import load_config_text
from tests.support.checkout import ROOT

# Not the hidden folders: other tests make and remove files in `.services` meanwhile.
FOLDERS = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".")]
READMES = [page for folder in FOLDERS for page in folder.glob("**/README.md")]
FOUND = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *READMES})
PAGES = [
    each for each in FOUND if not re.search(r"/(\.|node_modules)", str(each)[len(str(ROOT)) :])
]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
SOURCES_IN = ("bridge", "connectors", "lua", "deploy", "tests", "docs", "examples")
SOURCE = re.compile(r"(?<![\w/.-])((?:[a-z_-]+/)+[a-z_]+\.(?:py|lua))\b")
YAML = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def test_link_in_a_page_leads_to_a_file() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text())]
    broken = [f"{page.relative_to(ROOT)}: {link}" for page, link in links if "://" not in link]
    paths = [page.parent / link for page, link in links if "://" not in link]
    assert [what for what, path in zip(broken, paths, strict=True) if not path.exists()] == []


def test_source_file_that_a_page_names_exists() -> None:
    sources = [path.as_posix() for folder in SOURCES_IN for path in ROOT.glob(f"{folder}/**/*.*")]
    named = [(page, name) for page in PAGES for name in SOURCE.findall(page.read_text())]
    assert named
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page, name in named
        if page.name != "CHANGELOG.md" and not any(each.endswith(f"/{name}") for each in sources)
    ]
    assert missing == []


def test_whole_configuration_in_a_page_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEBRIDGE_TEST_KAFKA_BOOTSTRAP", "localhost:9092")
    monkeypatch.setenv("RABBIT_URL", "amqp://localhost/")
    blocks = [(page, *found) for page in PAGES for found in YAML.findall(page.read_text())]
    for page, indent, block in blocks:
        if "version: 1" in block and "type: file" not in block:  # that type is the guide's own
            load_config_text(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), page.name)
    assert blocks


def test_python_api_page_is_up_to_date() -> None:
    program = ROOT / "deploy" / "docs" / "api.py"
    assert subprocess.run([sys.executable, str(program), "--check"]).returncode == 0, "make api"


def test_lock_file_has_hashes_and_names_no_package_index() -> None:
    lock = Path(ROOT / "requirements.lock").read_text()
    pins = [line for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    assert 0 < len(pins) <= lock.count("--hash=sha256:")
    assert [line for line in lock.splitlines() if "://" in line or "index-url" in line] == []


def test_import_of_the_core_loads_no_broker_client_and_no_tracing() -> None:
    heavy = "('kafka', 'pika', 'pyspark', 'pyarrow', 'spans', 'exporting')"
    program = (
        f"import sys, duebridge; print({{m.split('.')[-1] for m in sys.modules}} & {{*{heavy}}})"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"set()\n"
