"""Packs the calls of scripts, which have hundreds of arguments, without a look at each."""

from typing import Any

from redis.connection import HiredisRespSerializer
from redis.utils import HIREDIS_AVAILABLE

if HIREDIS_AVAILABLE:
    import hiredis


class ScriptPacker(HiredisRespSerializer):
    """redis-py's packer, but for scripts: their arguments are bytes, text and numbers as they are.

    redis-py looks each argument over in Python, which takes half of the time of packing a call.
    """

    def pack(self, *args: Any) -> list[bytes]:
        """Return a command as it is sent."""
        if args[0] == "EVALSHA":
            return [hiredis.pack_command(args)]
        return super().pack(*args)  # type: ignore[no-any-return]


def script_packer() -> ScriptPacker | None:
    """Return the packer; None without hiredis, where redis-py packs by itself."""
    return ScriptPacker() if HIREDIS_AVAILABLE else None
