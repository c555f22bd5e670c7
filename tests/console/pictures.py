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
COLOURS, EXACT = 256, 96


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

    The most frequent are exact, since they are surfaces and dots; of the others, the edges of
    letters, those that are alike become one.
    """
    exact, places, counts = np.unique(rgb, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts)
    kept, others = order[:EXACT], order[EXACT:]
    cells, of_other = _cells(exact[others])
    place_of = np.empty(len(exact), np.int64)
    place_of[kept] = np.arange(len(kept))
    place_of[others] = len(kept) + of_other
    palette = np.vstack([exact[kept], cells]).astype(np.uint8)
    return palette.tobytes(), place_of[places.reshape(-1)]


def _cells(colours: Any) -> tuple[Any, Any]:
    """Return few colours in the place of many, and the place of each among them."""
    for bits in range(1, 8):
        found, of_each = np.unique(colours >> bits, axis=0, return_inverse=True)
        if len(found) <= COLOURS - EXACT:
            return (found << bits) + (1 << (bits - 1)), of_each.reshape(-1)
    raise AssertionError("eight colours always suffice")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
