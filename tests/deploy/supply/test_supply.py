"""What `make supply-chain` makes of this checkout, and how it judges packages and answers."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any
from zipfile import ZipFile

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from deploy.supply.audit import AuditFailed, audit, judge, unanswered
from deploy.supply.licences import UNKNOWN, is_allowed, licence, read_policy
from deploy.supply.locked import Pin, read_pins
from tests.support.checkout import ROOT

LOCK = ROOT / "requirements.lock"
LOCKS = {"duebridge": LOCK} | {
    f"duebridge-{image}": ROOT / "deploy" / "images" / f"{image}.lock"
    for image in ("worker", "spark")
}
REDIS = Pin("redis", "8.1.0", "", ())
PIKA = Pin("pika", "1.4.4", "", ())
OLD_REDIS = Pin("redis", "7.4.0", "", ())
POLICY = read_policy()
KNOWN = {
    "id": "GHSA-test-0001",
    "summary": "a hole",
    "affected": [{"package": {"name": "redis", "ecosystem": "PyPI"}}],
}


def clean(_: str) -> dict[str, Any]:
    return {}


def redis_is_vulnerable(name: str) -> dict[str, Any]:
    return {"vulns": [KNOWN]} if name == "redis" else {}


def nonsense(_: str) -> dict[str, Any]:
    return {"sorry": "another program"}


def down(_: str) -> dict[str, Any] | None:
    return None


@contextmanager
def service(answer: Any) -> Iterator[str]:
    """Yield the URL of a service that answers each package so; None is 503."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = answer(asked["package"]["name"])
            code = HTTPStatus.SERVICE_UNAVAILABLE if said is None else HTTPStatus.OK
            body = json.dumps(said).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join(10)


def git(*words: str) -> bytes:
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout


def checkout() -> str:
    """Return a commit of the checkout as it is, which no branch shows."""
    return git("stash", "create").decode().strip() or git("rev-parse", "HEAD").decode().strip()


@dataclass(frozen=True)
class Made:
    folder: Path
    commit: str
    code: int
    said: str

    def read(self, pattern: str) -> dict[str, Any]:
        [file] = self.folder.glob(pattern)
        return json.loads(file.read_text())


def make(folder: Path, url: str, commit: str, umask: int = 0o022, **variables: str) -> Made:
    words = [sys.executable, "-m", "deploy.supply", "--into", folder, "--osv-url", url]
    words += ["--commit", commit]
    env = os.environ | variables
    done = subprocess.run(words, cwd=ROOT, env=env, umask=umask, capture_output=True, text=True)
    return Made(folder, commit, done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    with service(clean) as url:
        return make(tmp_path_factory.mktemp("dist"), url, checkout())


@pytest.fixture(scope="module")
def again(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Made by somebody else: another umask, another day."""
    with service(down) as url:
        folder = tmp_path_factory.mktemp("dist")
        return make(folder, url, made.commit, umask=0o077, SOURCE_DATE_EPOCH="1")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def named(lock: Path) -> set[tuple[str, str]]:
    return {(pin.name, pin.version) for pin in read_pins(lock)}


def test_make_with_an_answer_checks_every_locked_package(made: Made) -> None:
    assert made.code == 0, made.said
    assert f"0 in {len(read_pins(LOCK))} packages checked" in made.said
    assert "NOT CHECKED" not in made.said


@pytest.mark.long
def test_make_without_an_answer_says_so_and_succeeds(again: Made) -> None:
    assert again.code == 0, again.said
    assert f"NOT CHECKED      all {len(read_pins(LOCK))} packages" in again.said
    assert "503" in again.said
    assert "0 in 0 packages checked" in again.said


def test_make_with_a_vulnerable_package_fails_and_names_it(made: Made, tmp_path: Path) -> None:
    with service(redis_is_vulnerable) as url:
        found = make(tmp_path, url, made.commit)
    assert found.code == 1, found.said
    assert "VULNERABLE       redis 8.1.0: GHSA-test-0001" in found.said


def test_state_provenance_has_digests_commit_and_lock_file(made: Made) -> None:
    stated = made.read("*.intoto.json")
    run = stated["predicate"]["runDetails"]
    told = {each["name"]: each["digest"]["sha256"] for each in stated["subject"]}
    beside = {each["name"]: each["digest"]["sha256"] for each in run["byproducts"]}
    there = {file.name: sha256(file.read_bytes()) for file in made.folder.iterdir()}
    del there["-".join(next(iter(told)).split("-")[:2]) + ".intoto.json"]
    assert sorted(Path(name).suffix for name in told) == [".gz", ".whl"]
    assert told | beside == there
    lock = sha256(git("show", f"{made.commit}:requirements.lock"))
    source, material = stated["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": made.commit}
    assert material == {"name": "requirements.lock", "digest": {"sha256": lock}}


def test_make_builds_a_wheel_with_every_script_of_the_commit(made: Made) -> None:
    [wheel] = made.folder.glob("*.whl")
    scripts = git("ls-tree", "-r", "--name-only", made.commit, "lua").decode().split()
    with ZipFile(wheel) as opened:
        packed = {name.removeprefix("duebridge/") for name in opened.namelist()}
    assert {script for script in scripts if script.endswith(".lua")} <= packed
    assert len(scripts) > 10


@pytest.mark.long
def test_make_again_from_the_same_commit_has_the_same_bytes(made: Made, again: Made) -> None:
    names = {file.name for file in made.folder.iterdir() if ".intoto." not in file.name}
    assert len(names) == 6
    for name in names:
        assert (made.folder / name).read_bytes() == (again.folder / name).read_bytes(), name


@pytest.fixture(scope="module")
def schema() -> Draft7Validator:
    folder = files("cyclonedx.schema") / "_res"
    names = ("bom-1.6", "spdx", "jsf-0.82")
    texts = {
        name: json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text()) for name in names
    }
    known = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource(text, DRAFT7))
        for name, text in texts.items()
    ]
    return Draft7Validator(texts["bom-1.6"], registry=Registry().with_resources(known))


@pytest.mark.parametrize("name", LOCKS)
def test_bill_of_materials_fits_the_schema_of_cyclonedx(
    made: Made, schema: Draft7Validator, name: str
) -> None:
    written = made.read(f"{name}-[0-9]*.cdx.json")
    assert [error.message for error in schema.iter_errors(written)] == []
    assert not schema.is_valid(written | {"components": [{"name": "without a type"}]})


@pytest.mark.parametrize("name", ["duebridge-worker", "duebridge-spark"])
def test_bill_of_an_image_lists_its_lock_file_exactly(made: Made, name: str) -> None:
    written = made.read(f"{name}-[0-9]*.cdx.json")
    listed = {(each["name"], each["version"]) for each in written["components"]}
    assert listed == named(LOCKS[name])


def test_bill_of_the_wheel_has_digests_licences_and_who_needs_whom(made: Made) -> None:
    written = made.read("duebridge-[0-9]*.cdx.json")
    parts = {each["name"]: each for each in written["components"]}
    [wheel] = made.folder.glob("*.whl")
    root = written["metadata"]["component"]
    assert root["hashes"] == [{"alg": "SHA-256", "content": sha256(wheel.read_bytes())}]
    assert (parts["redis"]["scope"], parts["kafka-python"]["scope"]) == ("required", "optional")
    assert {"pytest", "polars"}.isdisjoint(parts)
    assert parts["pandas"]["scope"] == "optional"
    assert parts["redis"]["licenses"] == [{"license": {"id": "MIT"}}]
    [pin] = [pin for pin in read_pins(LOCK) if pin.name == "redis"]
    told = {each["content"] for each in parts["redis"]["externalReferences"][0]["hashes"]}
    assert told == set(pin.hashes) != set()
    needs = {each["ref"]: each.get("dependsOn", []) for each in written["dependencies"]}
    assert parts["redis"]["bom-ref"] in needs["duebridge"]
    assert parts["pydantic-core"]["bom-ref"] in needs[parts["pydantic"]["bom-ref"]]


def test_read_lock_file_finds_every_version_of_a_package() -> None:
    pins = [pin for pin in read_pins(LOCK) if pin.name == "numpy"]
    assert len({pin.version for pin in pins}) == len({pin.marker for pin in pins}) == 2


@pytest.mark.parametrize("text", ["", "redis==8.1.0 \\\n    --hash=sha256:00\npika==1.4.4 \\\n"])
def test_read_lock_file_without_pins_or_hashes_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "some.lock").write_text(text)
    with pytest.raises(ValueError, match="version and hashes"):
        read_pins(tmp_path / "some.lock")


def test_audit_accepts_what_the_policy_names() -> None:
    with service(redis_is_vulnerable) as url:
        assert audit([REDIS, PIKA], [], url).found == ("redis 8.1.0: GHSA-test-0001",)
        assert audit([REDIS, PIKA], ["GHSA-test-0001"], url).found == ()


def test_audit_of_two_versions_of_a_package_checks_both() -> None:
    with service(redis_is_vulnerable) as url:
        audited = audit([REDIS, OLD_REDIS, PIKA], [], url)
    found = {"redis 8.1.0: GHSA-test-0001", "redis 7.4.0: GHSA-test-0001"}
    assert (set(audited.found), audited.unchecked) == (found, {})


def test_audit_of_a_closed_port_leaves_every_package_unchecked() -> None:
    with service(clean) as url:
        pass
    audited = audit([REDIS, PIKA], [], url)
    assert (audited.found, set(audited.unchecked)) == ((), {"redis==8.1.0", "pika==1.4.4"})


def test_audit_of_an_answer_that_breaks_pip_audit_fails() -> None:
    with service(nonsense) as url, pytest.raises(AuditFailed, match="KeyError"):
        audit([REDIS], [], url)


def test_judge_report_counts_skipped_and_missing_packages_as_unchecked() -> None:
    skipped = {"name": "redis", "skip_reason": "not found"}
    whole = {"name": "pika", "version": "1.4.4", "vulns": []}
    assert judge({"dependencies": [skipped, whole]}, [REDIS, PIKA]).unchecked == {
        "redis==8.1.0": "not found"
    }
    assert judge({"dependencies": [whole]}, [REDIS, PIKA]).unchecked == {
        "redis==8.1.0": "not in the report"
    }


def test_read_words_of_pip_audit_tells_a_silent_service_from_a_broken_program() -> None:
    silent = "ERROR:pip_audit._cli:Could not connect to OSV's vulnerability feed"
    assert unanswered(f"...\n{silent}\nERROR: Tip") == silent
    with pytest.raises(AuditFailed, match="No module named pip_audit"):
        unanswered("/bin/python: No module named pip_audit")


@pytest.mark.parametrize(
    ("package", "expression", "allowed"),
    [
        ("any", "MIT", True),
        ("any", "MIT AND Apache-2.0", True),
        ("any", "GPL-3.0-only OR MIT", True),
        ("any", "GPL-3.0-only AND MIT", False),
        ("any", "GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("any", "LGPL-2.1-or-later", False),
        ("crc32c", "LGPL-2.1-or-later", True),
        ("any", "All rights reserved", False),
        ("any", UNKNOWN, False),
    ],
)
def test_judge_licence_by_the_policy(package: str, expression: str, allowed: bool) -> None:
    assert is_allowed(package, expression, POLICY) is allowed


def test_find_licence_of_a_package_not_installed_is_unknown_unless_read() -> None:
    assert licence(Pin("redis", "0.0.1", "", ()), POLICY) == UNKNOWN
    assert licence(Pin("colorama", "0.0.1", "", ()), POLICY) == "BSD-3-Clause"
