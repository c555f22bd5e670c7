"""Writes a screenshot as a PNG of at most 256 colours: half the size, and no text blurs."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page

PIXELS = """async (picture) => {
  const blob = await (await fetch("data:image/png;base64," + picture)).blob();
  const bitmap = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  const { data } = canvas.getImageData(0, 0, bitmap.width, bitmap.height);
  const url = await new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.readAsDataURL(new Blob([data]));
  });
  return [bitmap.width, bitmap.height, url.split(",")[1]];
}"""
COLOURS = 256


def write_picture(blank: Page, png: bytes, file: Path) -> None:
    """Write a PNG again; `blank` is an empty page, whose browser reads the pixels."""
    width, height, pixels = blank.evaluate(PIXELS, base64.b64encode(png).decode())
    rgb = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height, width, 4)[:, :, :3]
    palette, places = _palette(rgb.reshape(-1, 3))
    rows = places.astype(np.uint8).reshape(height, width)
    data = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = {b"IHDR": header, b"PLTE": palette, b"IDAT": zlib.compress(data, 9), b"IEND": b""}
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks, chunks.values())))


def _palette(rgb: Any) -> tuple[bytes, Any]:
    """Return few enough colours, and the place of each pixel's among them.

    The most frequent are exact: they are the surfaces; the edges of letters are rounded.
    """
    exact, places, counts = np.unique(rgb, axis=0, return_inverse=True, return_counts=True)
    if len(exact) <= COLOURS:
        return exact.astype(np.uint8).tobytes(), places.reshape(-1)
    chosen = exact[np.argsort(-counts)[:COLOURS]].astype(np.int32)
    nearest = [int(np.abs(chosen - one.astype(np.int32)).sum(axis=1).argmin()) for one in exact]
    return chosen.astype(np.uint8).tobytes(), np.array(nearest)[places.reshape(-1)]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
