"""A connector of another distribution adds a broker type; the guide builds it word by word."""

import base64
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import httpx
import msgspec
import pytest

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Publisher
from tests.contract.publisher_contract import PublisherContract
from tests.support.checkout import ROOT
from tests.support.contract.broker_under_test import BRIDGE_ID, Received
from tests.support.kafka.kafka_broker import KafkaBroker

SOURCE = ROOT / "tests" / "support" / "file_connector"


SHOWN = ("pyproject.toml", "file_connector/broker.py", "file_connector/publisher.py")


def guide() -> str:
    return (ROOT / "connectors" / "README.md").read_text("utf-8")


def shown_in_the_guide(name: str) -> str:
    """Return a file of the connector as the guide has it, word by word."""
    blocks = re.findall(r"```\w+\n(.*?)```", guide(), re.DOTALL)
    (shown,) = [block for block in blocks if block == (SOURCE / name).read_text("utf-8")]
    return str(shown)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the directory that pip has installed the connector into."""
    place, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("guide")
    (source / "file_connector").mkdir()
    (source / "file_connector" / "__init__.py").touch()
    for name in SHOWN:
        (source / name).write_text(shown_in_the_guide(name), "utf-8")
    how = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(place)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, *how, str(source)], check=True, capture_output=True)
    sys.path.insert(0, str(place))
    yield place
    sys.path.remove(str(place))
    for name in [name for name in sys.modules if name.partition(".")[0] == "file_connector"]:
        del sys.modules[name]


class FileBroker:
    """A directory of files."""

    features = replace(KafkaBroker.features, broker="file", size_limit=False, invalid=False)

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, deadline_s: float) -> Publisher:
        from file_connector.broker import FILE

        settings = {"type": "file", "directory": str(self._directory)}
        publisher: Publisher = FILE.open_publisher(settings, deadline_s)
        return publisher

    def open_at(self, port: int, deadline_s: float) -> Publisher:
        return FileBroker(self._directory / str(port)).open(deadline_s)

    def missing_target(self) -> Target:
        return Target("file", path=secrets.token_hex(6))

    def create(self, target: Target) -> None:
        self._path(target).touch()

    def delete(self, target: Target) -> None:
        self._path(target).unlink()

    def read_all(self, target: Target) -> Sequence[Received]:
        return [received(line) for line in self._path(target).read_bytes().splitlines()]

    def too_large(self, target: Target) -> Delivery:
        raise NotImplementedError

    def invalid(self) -> tuple[Delivery, Delivery]:
        raise NotImplementedError

    def _path(self, target: Target) -> Path:
        return self._directory / str(target.path)


def received(line: bytes) -> Received:
    found = msgspec.json.decode(line)
    headers = tuple(
        (name, unpacked(value)) for name, value in found["headers"] if name != BRIDGE_ID
    )
    return Received(unpacked(found["body"]), found["id"], unpacked(found["key"]), headers)


def unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class TestFilePublisher(PublisherContract):
    @pytest.fixture
    def broker(self, installed: Path, tmp_path: Path) -> FileBroker:
        return FileBroker(tmp_path)


# As users meet it: the command line, in a process of its own

CONFIG = """\
version: 1
store: {{url: "{url}", namespace: "{namespace}"}}
brokers:
  desk: {{type: file, directory: "{home}"}}
serve: {{listen: "127.0.0.1:0"}}
routes:
  letters:
    target: {{broker: desk, path: letters.jsonl}}
    allow_targets: [{{broker: desk, path: "other-*"}}]
"""


class Installation:
    """The command, with the connector on its path."""

    def __init__(self, site: Path, home: Path) -> None:
        self.config = home / "duebridge.yaml"
        paths = (str(site), os.environ.get("PYTHONPATH", ""))
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments),
            input=given,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run `duebridge serve` until the end; gives its URL."""
        process = subprocess.Popen(
            self._command("serve"), env=self._environment, stderr=subprocess.PIPE
        )
        assert process.stderr
        try:
            [first] = islice((each for each in process.stderr if b'"serving"' in each), 1)
            yield f"http://127.0.0.1:{json.loads(first)['port']}"
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def _command(self, *arguments: str) -> list[str]:
        program = "import sys; from duebridge.cli import main; sys.exit(main())"
        return [sys.executable, "-c", program, "--config", str(self.config), *arguments]


@pytest.fixture
def duebridge(installed: Path, tmp_path: Path, redis_url: str) -> Installation:
    found = Installation(installed, tmp_path)
    namespace = f"file-{secrets.token_hex(6)}"
    found.config.write_text(CONFIG.format(url=redis_url, namespace=namespace, home=tmp_path))
    return found


def test_check_file_type_is_taken(duebridge: Installation) -> None:
    [of_the_guide] = re.findall(r"```yaml\n(version: 1\n.*?)```", guide(), re.DOTALL)
    for text in (duebridge.config.read_text(), of_the_guide):
        duebridge.config.write_text(text)
        checked = duebridge.run("config", "check")
        assert (checked.returncode, checked.stderr) == (0, "")


def test_check_file_type_names_the_place_of_each_mistake(duebridge: Installation) -> None:
    text = duebridge.config.read_text().replace("path: letters", "paht: letters")
    text = text.replace('directory: "/', 'directory: "')
    duebridge.config.write_text(f"{text}  notes: {{target: {{broker: desk, path: a/b}}}}\n")
    found = duebridge.run("config", "check")
    assert found.returncode == 2
    assert "routes.letters.target.paht: unknown key, did you mean path?" in found.stderr
    assert "routes.notes.target.path: expected the name of a file" in found.stderr
    assert "duebridge.yaml:4:33 brokers.desk.directory: expected / first" in found.stderr


def test_schema_has_the_installed_type(duebridge: Installation) -> None:
    schema = json.loads(duebridge.run("config", "schema").stdout)
    assert schema["$defs"]["FileSettings"]["properties"]["directory"]["description"]
    choices = schema["properties"]["brokers"]["additionalProperties"]["anyOf"]
    assert {"$ref": "#/$defs/FileSettings"} in choices


def test_check_connect_reports_a_missing_file(duebridge: Installation) -> None:
    looked = duebridge.run("config", "check", "--connect")
    assert looked.returncode == 4
    assert "no file letters.jsonl" in looked.stdout


def test_run_delivers_envelopes_into_files(duebridge: Installation, tmp_path: Path) -> None:
    own = {"broker": "desk", "path": "other-1"}
    lines = [{"id": "a", "body": "hello", "delay": "1ms", "key": "k", "headers": {"x": "y"}}]
    lines += [{"id": "b", "body": "there", "delay": "1ms", "target": own}]
    for name in ("letters.jsonl", "other-1"):
        (tmp_path / name).touch()
    sent = duebridge.run("send", "letters", "-", "--jsonl", given="\n".join(map(json.dumps, lines)))
    assert sent.returncode == 0, sent.stderr
    worked = duebridge.run("run", "--until-empty")
    assert worked.returncode == 0, worked.stderr
    [first] = map(received, (tmp_path / "letters.jsonl").read_bytes().splitlines())
    [second] = map(received, (tmp_path / "other-1").read_bytes().splitlines())
    assert (first.id, first.body, first.key) == ("a", b"hello", b"k")
    assert dict(first.headers)["x"] == b"y"
    assert (second.id, second.body) == ("b", b"there")


def test_serve_gives_cloud_events_the_headers_of_the_type(duebridge: Installation) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/desk", "type": "letter", "delay": "1h"}
    headers = {f"ce-{name}": value for name, value in event.items()}
    with duebridge.serving() as url:
        path = f"{url}/v1/routes/letters/envelopes"
        answer = httpx.post(path, content=b"hello", headers=headers, timeout=60, trust_env=False)
    assert answer.status_code == 201, answer.text
    shown = duebridge.run("get", "letters", "/desk|1", "--output", "json")
    found = dict(json.loads(shown.stdout)["headers"])
    del event["delay"]
    assert found == {f"ce-{name}": value for name, value in event.items()}


def test_send_properties_that_the_type_cannot_carry_is_refused(duebridge: Installation) -> None:
    line = json.dumps({"body": "x", "delay": "1s", "content_type": "text/plain"})
    sent = duebridge.run("send", "letters", "-", "--jsonl", given=line)
    assert sent.returncode != 0
    assert "properties: expected none on a file route" in sent.stdout + sent.stderr


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("check_envelope(self, envelope, headers, settings)", "send letters x --delay 1s"),
        ("check_settings(self, settings, publish_deadline_s)", "config check"),
        ("open_publisher(self, settings, publish_deadline_s)", "run --until-empty"),
    ],
)
def test_run_guarded_defect_of_a_connector_names_the_connector(
    duebridge: Installation, installed: Path, tmp_path: Path, method: str, line: str
) -> None:
    site = shutil.copytree(installed, tmp_path / "site")
    code = site / "file_connector" / "broker.py"
    broken = f"def {method}:\n        settings['canary']"
    code.write_text(code.read_text().replace(f"def {method}:", broken))
    told = Installation(site, duebridge.config.parent).run(*line.split())
    where = "a defect in the connector file_connector: KeyError at "
    assert told.returncode == 70
    assert f"duebridge: {where}" in told.stderr
    assert "canary" not in told.stderr
