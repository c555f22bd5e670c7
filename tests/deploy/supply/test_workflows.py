"""The workflows: valid, and a release only of what was tested, pinned and signed.

The steps that need no registry are run here as they stand, those that sign in
`test_signing`; pushing of images is only linted.
"""

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.chart import Chart, objects, one, pod_templates, values_of
from tests.deploy.supply.release import CI, FOLDER, JOBS, SOURCE, TEXT, VERSION, script
from tests.support.checkout import ROOT, downloaded

PINNED = f"registry.example/python@sha256:{'0' * 64}"


def run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | variables
    words = ["bash", "-e", "-c", text]
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_lint_of_the_workflows_finds_nothing() -> None:
    files = sorted(map(str, FOLDER.iterdir()))
    done = subprocess.run([downloaded("actionlint"), *files], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_foreign_actions_are_pinned_to_a_commit() -> None:
    texts = "".join(file.read_text("utf-8") for file in FOLDER.iterdir())
    foreign = [use for use in re.findall(r"uses: (\S+)", texts) if not use.startswith("./")]
    loose = {use for use in foreign if not re.search(r"@[0-9a-f]{40}$", use)}
    assert loose == {"pypa/gh-action-pypi-publish@release/v1"}, "its maintainers move that branch"


def test_nothing_is_released_before_the_tests_pass() -> None:
    assert JOBS["ci"]["uses"] == "./.github/workflows/ci.yaml"
    for name in JOBS:
        seen, todo = set(), [name]
        while todo:
            seen.add(job := todo.pop())
            needs = JOBS[job].get("needs", [])
            todo += [needs] if isinstance(needs, str) else needs
        assert "ci" in seen, name
    ran = {step.get("run") for job in CI.values() for step in job["steps"]}
    assert "make test-release" in ran, "the release's own steps, with a key of the test's"


@pytest.mark.parametrize(("said", "code"), [("9 passed", 0), ("no cluster answers at X", 1)])
@pytest.mark.parametrize("first", ["172.18.0.1", "fc00:f853:ccd:e793::1"])
def test_chart_is_tried_on_a_cluster_at_its_address_or_the_job_fails(
    tmp_path: Path, said: str, code: int, first: str
) -> None:
    steps = CI["k8s"]["steps"]
    [step] = [each for each in steps if each.get("name") == "The chart on a cluster"]
    assert any(each.get("uses", "").startswith("helm/kind-action@") for each in steps)
    programs = {"docker": f"printf '{first}\\n172.18.0.1\\n'"}
    programs["make"] = f'echo "$1 at $DUEBRIDGE_K8S_HOST: {said}"'
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run(f"set -o pipefail\n{step['run']}", RUNNER_TEMP=str(tmp_path), PATH=path)
    assert done.stdout.startswith(f"test-k8s at 172.18.0.1: {said}")
    assert done.returncode == code


def test_release_names_no_registry_but_by_variables() -> None:
    hosts = r"\b(ghcr|gcr|quay|docker|pypi|gitlab)\.(io|com|org)\b|amazonaws|azurecr"
    assert not re.search(hosts, TEXT)


@pytest.mark.parametrize(
    ("base", "debian", "code"),
    [
        (PINNED, PINNED, 0),
        (PINNED, "debian:bookworm-slim", 1),
        ("python3-debian12:latest", PINNED, 1),
        ("", "", 1),
        (PINNED, f"{PINNED[:-1]}", 1),
    ],
)
def test_release_builds_only_from_pinned_bases(base: str, debian: str, code: int) -> None:
    done = run(script("images", "Bases are pinned by digest"), BASE=base, DEBIAN=debian)
    assert done.returncode == code
    assert ("expected IMAGE@sha256:DIGEST" in done.stdout) is bool(code)


def test_bake_builds_both_processors_from_the_given_bases_with_provenance_and_sbom() -> None:
    file = yaml.safe_load((ROOT / "deploy" / "images" / "docker-bake.json").read_text("utf-8"))
    image = file["target"]["image"]
    assert image["platforms"] == ["linux/amd64", "linux/arm64"]
    assert {each.partition(",")[0] for each in image["attest"]} == {"type=provenance", "type=sbom"}
    assert image["args"]["DEBIAN"] == "${DEBIAN}"
    assert file["target"]["worker"]["args"] == {"BASE": "${BASE}"}
    for name in ("worker", "spark"):
        taken = (ROOT / file["target"][name]["dockerfile"]).read_text("utf-8")
        for variable in image["args"] | file["target"][name].get("args", {}):
            assert re.search(rf"^ARG {variable}=", taken, re.MULTILINE), variable


@pytest.mark.parametrize(
    ("tag", "is_taken"), [(f"v{VERSION}", True), (VERSION, False), ("v9", False)]
)
def test_release_of_a_tag_that_is_not_the_version_stops(
    tmp_path: Path, tag: str, is_taken: bool
) -> None:
    output = tmp_path / "output"
    text = script("files", "The tag is the version of program and chart")
    done = run(text, GITHUB_REF_NAME=tag, GITHUB_OUTPUT=str(output))
    assert (done.returncode == 0) is is_taken
    assert (output.read_text() if output.exists() else "") == f"version={VERSION}\n" * is_taken


@pytest.fixture
def package(chart: Chart, tmp_path: Path) -> Callable[[str], Path]:
    """Return what runs the release's own step, and gives the package."""

    def make(registry: str) -> Path:
        where = {"REGISTRY": registry, "SOURCE": SOURCE, "REVISION": "a" * 40}
        path = f"{Path(chart.helm).parent}:{os.environ['PATH']}"
        text = script("chart", "Package, with the names of the published images")
        done = run(text, RUNNER_TEMP=str(tmp_path), PATH=path, **where)
        assert done.returncode == 0, done.stderr
        return tmp_path / f"duebridge-{VERSION}.tgz"

    return make


def images_of(chart: Chart, package: Path, *options: str) -> set[str]:
    """Return what the pods of a package pull, jobs on Spark among them."""
    jobs = ("-f", str(values_of("spark-cronjob")), *options)
    rendered = objects(chart.run("template", "demo", str(package), *jobs))
    return {pod["spec"]["containers"][0]["image"] for _, pod in pod_templates(list(rendered))}


@pytest.mark.parametrize("registry", ["registry.example", "registry.example:5000/shop/tools"])
def test_published_chart_pulls_the_published_images(
    chart: Chart, package: Callable[[str], Path], registry: str
) -> None:
    built = yaml.safe_load((ROOT / "deploy" / "images" / "docker-bake.json").read_text("utf-8"))
    tags = [built["target"][name]["tags"][0] for name in ("worker", "spark")]
    where = {"${REGISTRY}": registry, "${VERSION}": VERSION}
    pushed = {re.sub(r"\$\{\w+\}", lambda found: where[found[0]], tag) for tag in tags}
    assert images_of(chart, package(registry)) == pushed


def test_image_that_names_its_host_is_taken_from_there(
    chart: Chart, package: Callable[[str], Path]
) -> None:
    file = package("registry.example/shop")
    mine = "--set=image.repository=localhost/mine,spark.image.repository=other/mine"
    found = images_of(chart, file, mine)
    assert found == {f"localhost/mine:{VERSION}", f"registry.example/other/mine:{VERSION}"}


def test_published_chart_says_where_it_comes_from(package: Callable[[str], Path]) -> None:
    with tarfile.open(package("registry.example/shop")) as archive:
        about = yaml.safe_load(archive.extractfile("duebridge/Chart.yaml") or b"")
    assert (about["home"], about["sources"]) == (SOURCE, [SOURCE])
    assert about["maintainers"]
    _, _, icon = about["icon"].partition(f"{SOURCE}/raw/{'a' * 40}/")
    assert (ROOT / icon).is_file()
    hub = {name.partition("/")[2]: text for name, text in about["annotations"].items()}
    [worker, _] = json.loads(hub["images"])
    assert worker == {"name": "worker", "image": f"registry.example/shop/duebridge:{VERSION}"}
    assert {"kind", "description"} == json.loads(hub["changes"])[0].keys()
    _, _, page = json.loads(hub["links"])[0]["url"].partition(f"/blob/{'a' * 40}/")
    assert (ROOT / page).is_file()


def test_alerts_of_a_published_chart_name_runbooks_that_are_there(
    chart: Chart, package: Callable[[str], Path]
) -> None:
    words = ("template", "demo", str(package("registry.example/shop")))
    rendered = objects(chart.run(*words, "-f", str(values_of("monitoring"))))
    [group] = one(list(rendered), "PrometheusRule")["spec"]["groups"]
    assert group["rules"]
    for rule in group["rules"]:
        start, _, page = rule["annotations"]["runbook_url"].partition(f"/blob/{'a' * 40}/")
        assert start == SOURCE
        assert (ROOT / page).is_file(), page


def test_images_say_where_they_come_from() -> None:
    for file in (ROOT / "deploy" / "images").glob("*.Dockerfile"):
        labels = re.findall(r"org\.opencontainers\.image\.(\w+)=", file.read_text("utf-8"))
        wanted = {"title", "description", "licenses", "version", "revision", "source"}
        assert set(labels) == wanted, file


@pytest.mark.parametrize(("said", "code"), [("2 pins", 0), ("NOT CHECKED redis: timeout", 1)])
def test_release_with_packages_that_were_not_audited_stops(
    tmp_path: Path, said: str, code: int
) -> None:
    text = script("files", "Wheel, sdist, SBOMs, licences and provenance")
    assert text.startswith("make supply-chain ")
    audited = text.replace("make supply-chain", f"echo '{said}'")
    assert run(audited, RUNNER_TEMP=str(tmp_path)).returncode == code


@pytest.mark.parametrize("job", ["files", "images", "chart"])
def test_what_is_published_is_signed_by_the_workflows_identity(job: str) -> None:
    assert JOBS[job]["permissions"]["id-token"] == "write"
    signing = "\n".join(step.get("run", "") for step in JOBS[job]["steps"])
    assert re.search(r"cosign (sign|sign-blob) --yes ", signing)
    assert "--key" not in signing
