"""Image archives, as `docker save` writes and `docker load` or containerd read them.

The same files give the same bytes: owners, times and order are taken out of what a tar says.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

DIGEST = "sha256"


class Layer(NamedTuple):
    """A layer's tar, and the digest that names it."""

    path: Path
    digest: str


def layer(path: Path) -> Layer:
    """Return a tar as a layer."""
    with path.open("rb") as file:
        return Layer(path, hashlib.file_digest(file, DIGEST).hexdigest())


def packed(folder: Path, into: Path) -> Layer:
    """Write a directory's content as a layer, everything owned by root."""
    with tarfile.open(into, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder), recursive=False, filter=_anonymous)
    return layer(into)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode &= 0o1777  # no program of an image makes another user of who starts it
    return entry


def read(archive: Path, into: Path) -> tuple[dict[str, Any], list[Layer]]:
    """Return an image's configuration, and its layers as files in a directory."""
    with tarfile.open(archive) as tar:
        (manifest,) = json.loads(_member(tar, "manifest.json"))
        config: dict[str, Any] = json.loads(_member(tar, manifest["Config"]))
        for number, name in enumerate(manifest["Layers"]):
            into.joinpath(f"base-{number}.tar").write_bytes(_member(tar, name))
    return config, [layer(path) for path in sorted(into.glob("base-*.tar"))]


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    found = tar.extractfile(name)
    if found is None:
        raise SystemExit(f"{tar.name!r}: expected a file {name}")
    content = found.read()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def write(out: Path, tag: str, config: dict[str, Any], layers: list[Layer]) -> None:
    """Write an image of these layers; the file carries its name only once it is whole."""
    config = {**config, "os": "linux", "history": []}
    config["rootfs"] = {
        "type": "layers",
        "diff_ids": [f"{DIGEST}:{each.digest}" for each in layers],
    }
    text = json.dumps(config, sort_keys=True).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    places = [f"{each.digest}/layer.tar" for each in layers]
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": places}]).encode()
    partial = out.with_name(f".{out.name}.partial")
    with tarfile.open(partial, "w") as tar:
        for place, content in (("manifest.json", manifest), (name, text)):
            entry = tarfile.TarInfo(place)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for place, each in dict(zip(places, layers, strict=True)).items():
            tar.add(each.path, place, filter=_anonymous)
    partial.replace(out)
