"""Build an image without Docker, as an archive for `docker load`, `ctr images import` and others.

`python -m deploy.images.build worker --tag localhost/duebridge:1 worker.tar`. What did not change
since the last time is taken from the cache, so that a repeated build takes about two seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy.images import archive, debian
from deploy.images.archive import Layer
from deploy.images.kept import folder, kept
from deploy.images.locked import ROOT, of_image
from deploy.images.recipe import FOLDER, Recipe, recipe
from deploy.images.tree import MACHINES, Wanted, application, dependencies, requirements


def wheel(into: Path) -> Path:
    """Build the project's wheel; the same sources give the same bytes."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = into.glob("*.whl")
    return found


def root_of(layers: list[Layer], into: Path) -> Path:
    """Unpack an image, for what has to be read of it; returns the directory."""
    into.mkdir()
    for each in layers:
        subprocess.run(["tar", "-xf", each.path, "-C", into, "--no-same-owner"], check=True)
    return into


def jars(image: str) -> list[Path]:
    """Return what an image has of Maven Central: for Spark, its Kafka connector."""
    if image != "spark":
        return []
    command = [sys.executable, str(ROOT / "deploy" / "local" / "spark_jars.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Path(each) for each in done.stdout.strip().split(",")]


def source(*names: str) -> str:
    """Return the text of modules beside this one: when they change, what they made is old."""
    return "".join((FOLDER / f"{name}.py").read_text("utf-8") for name in names)


def below(wanted: Wanted, given: Path | None, place: Path) -> tuple[dict[str, Any], list[Layer]]:
    """Return the image that ours is put on: its configuration and layers."""
    if given:
        return archive.read(given, place)
    architecture = wanted.platform.partition("/")[2]
    made_of = [wanted.image, architecture, source("debian", "archive")]
    name = f"{wanted.image}-base-{architecture}"
    made = kept(name, made_of, lambda into: debian.fill(wanted.image, architecture, into))
    return {"config": {}}, [made]


def build(wanted: Wanted, tag: str, out: Path, base: Path | None = None) -> None:
    """Write the archive of an image."""
    with tempfile.TemporaryDirectory(dir=folder()) as name:
        place = Path(name)
        config, layers = below(wanted, base, place)
        built = wheel(place)
        layers = with_application(wanted, built, with_dependencies(wanted, layers, place), place)
        told = recipe(wanted.image, arguments(built))
        archive.write(out, tag, settings(wanted, config, told), layers)


def with_dependencies(wanted: Wanted, layers: list[Layer], place: Path) -> list[Layer]:
    """Return an image's layers and one more: the locked packages."""
    made_of = [wanted.platform, requirements(wanted, of_image(wanted.image))]
    made_of += [*(each.digest for each in layers), source("tree", "bytecode", "archive")]
    brought = jars(wanted.image)
    made_of += [each.name for each in brought]

    def fill(into: Path) -> None:
        dependencies(wanted, root_of(layers, place / "below-dependencies"), into, brought)

    return [*layers, kept(f"{wanted.image}-dependencies", made_of, fill)]


def with_application(wanted: Wanted, built: Path, layers: list[Layer], place: Path) -> list[Layer]:
    """Return an image's layers and one more: the project."""
    made_of = [archive.layer(built).digest, *(each.digest for each in layers)]
    made_of += [source("tree", "bytecode", "sbom", "archive", "spark_entrypoint")]

    def fill(into: Path) -> None:
        application(wanted, root_of(layers, place / "below-application"), built, into)

    return [*layers, kept(f"{wanted.image}-application", made_of, fill)]


def arguments(built: Path) -> dict[str, str]:
    """Return what `docker build` is given as build arguments."""
    asked = ["git", "rev-parse", "--verify", "--quiet", "HEAD"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"VERSION": built.name.split("-")[1], "REVISION": done.stdout.strip() or "unknown"}


def settings(wanted: Wanted, config: dict[str, Any], told: Recipe) -> dict[str, Any]:
    """Return the image's configuration: that of the image below, and what the Dockerfile adds."""
    inherited = config["config"]
    known = dict(each.split("=", 1) for each in inherited.get("Env") or [])
    environment = [f"{name}={value}" for name, value in {**known, **told.config["Env"]}.items()]
    return {
        "architecture": wanted.platform.partition("/")[2],
        "config": {**inherited, **told.config, "Env": environment},
    }


def main() -> None:
    """Build what was asked for, and say what it is."""
    parser = argparse.ArgumentParser(
        description="Build an image without Docker, as an archive that `docker load` takes.",
        epilog="python -m deploy.images.build worker --tag localhost/duebridge:1 worker.tar",
    )
    parser.add_argument("image", choices=("worker", "spark"))
    parser.add_argument("--tag", required=True, help="the image's name, such as localhost/bridge:1")
    parser.add_argument("--platform", choices=tuple(MACHINES), default="linux/amd64")
    parser.add_argument("--base", type=Path, help="an archive of the image to put it on")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    build(Wanted(given.image, given.platform), given.tag, given.out, given.base)
    print(f"{given.out}: {given.tag}, {given.platform}, {given.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
