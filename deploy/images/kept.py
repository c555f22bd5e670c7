"""Layers kept between builds, each under a name that says what it was made of."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.images import archive
from deploy.images.archive import Layer


def folder() -> Path:
    """Return where they are kept: remove it to begin anew."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    found = Path(home) / "duebridge" / "images"
    found.mkdir(parents=True, exist_ok=True)
    return found


def kept(name: str, made_of: Sequence[str], make: Callable[[Path], None]) -> Layer:
    """Return the layer that `make` fills a directory for, made once for what it is made of."""
    key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    path = folder() / f"{name}-{key}.tar"
    if not path.exists():
        print(f"making {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder()) as place:
            content, partial = Path(place, "content"), Path(place, "layer.tar")
            content.mkdir()
            make(content)
            archive.packed(content, partial)
            # Only a whole layer ever carries the final name.
            partial.replace(path)
    return archive.layer(path)
