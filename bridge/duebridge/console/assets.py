"""The files that pages load, kept in memory; an address changes with its content."""

import gzip
from hashlib import blake2b
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
FOR_EVER = "public, max-age=31536000, immutable"


class Assets:
    """Every file below `static/`, by its path there."""

    def __init__(self) -> None:
        files = [path for path in FOLDER.rglob("*") if path.suffix in TYPES]
        self._content = {str(path.relative_to(FOLDER)): path.read_bytes() for path in files}
        self._packed = {name: gzip.compress(data) for name, data in self._content.items()}
        self._tags = {
            name: blake2b(data, digest_size=6).hexdigest() for name, data in self._content.items()
        }

    def address(self, name: str) -> str:
        """Return the address of a file, which browsers may keep for ever."""
        return f"/static/{name}?v={self._tags[name]}"

    async def answer(self, request: Request) -> Response:
        """Return a file."""
        name = request.path_params["name"]
        if name not in self._content:
            return Response("no such file", 404, media_type="text/plain")
        headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
        data = self._content[name]
        if "gzip" in request.headers.get("accept-encoding", ""):
            data, headers["Content-Encoding"] = self._packed[name], "gzip"
        return Response(data, headers=headers, media_type=TYPES[Path(name).suffix])
