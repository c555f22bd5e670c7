"""Redis as a delay store needs it: every write in the append-only file, nothing evicted."""

from __future__ import annotations

import packages
from process import spawn
from state import HOST, Place, Service, ports

CONFIG = """\
bind {host}
protected-mode no
port {port}
daemonize no
dir "{data}"
logfile ""
appendonly yes
save ""
maxmemory-policy noeviction
"""


def start(place: Place) -> Service:
    """Start Redis with a configuration of its own."""
    port = ports(place, ["redis"])["redis"]
    data, log = place.data("redis"), place.log("redis")
    config = data / "redis.conf"
    config.write_text(CONFIG.format(host=HOST, port=port, data=data), "utf-8")
    process = spawn("redis", [packages.redis(), str(config)], log=log, cwd=data)
    return Service("redis", HOST, port, str(log), str(data), process=process)
