"""Serves HTTP for probes, metrics and autoscalers: `/livez`, `/readyz`, `/metrics`, `/due`.

Liveness checks only that the loops of worker and intakes run; it contacts neither store nor broker.
Readiness fails if the store or a broker does not answer or refuses, too few replicas confirm a
claim, an intake does not read its source, a route requires a newer duebridge, or the process
started without a route that holds envelopes.
"""

import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec
import structlog
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from duebridge.errors import described
from duebridge.runtime import EVERY_ADDRESS, listening
from duebridge.store.wire.poll import NONE, Stats
from duebridge.store.workers import IntakeRecord
from duebridge.worker.shard import ShardView
from duebridge.worker.worker import Worker

# Above the timeouts of store calls and broker pings. With three probes 4 s apart and 3 s of grace,
# a frozen worker is still replaced within 30 s.
FROZEN_AFTER_S = 12.0
MOST_CONNECTIONS = 32
INTAKE_FROZEN_AFTER_S = 60.0  # above a publish deadline, of its dead letters, and a slow log-in

NOTHING: Mapping[str, float] = MappingProxyType({})
Page = tuple[int, str, bytes]
Intakes: TypeAlias = Callable[[], Sequence[IntakeRecord]]
Idle: TypeAlias = Callable[[], Mapping[str, float]]
log = structlog.get_logger()


class _Server(ThreadingHTTPServer):
    """Serves at most `MOST_CONNECTIONS` at once, each in a thread.

    One more ends the oldest: were the new one refused, clients that hold theirs would make the
    probes fail, and the worker restart. `close` waits for those threads: one that ran on while the
    interpreter ends would log to a closed stream.
    """

    daemon_threads = False  # of a daemon, `server_close` does not wait for the end

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()  # of IPv4 alone
        self.socket = listening(*address)
        self.server_address = self.socket.getsockname()
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._guard = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        with self._guard:
            self._open[request] = None
        self._end_oldest()
        super().process_request(request, client_address)

    def server_close(self) -> None:
        """Close the listening socket, and every connection once what it asked for is answered."""
        with self._guard:
            for each in self._open:
                with suppress(OSError):  # it has ended by itself
                    each.shutdown(socket.SHUT_RD)  # an idle one ends now, not when its time is up
        super().server_close()

    def _end_oldest(self) -> None:
        with self._guard:
            if len(self._open) <= MOST_CONNECTIONS:
                return
            oldest = next(iter(self._open))
            del self._open[oldest]
        with suppress(OSError):  # it has ended by itself
            oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - theirs
        """Log what went wrong in a line; a client that hung up is no error of ours."""
        error = sys.exception()
        say = log.debug if isinstance(error, ConnectionError) else log.error
        say("probe_failed", error=described(error))


class HealthServer:
    """An HTTP server in background threads; `port` 0 selects a free port.

    `intakes` returns the state of those that the process runs, `idle_s` the seconds since the last
    step of each; `missing` a fault for each route that the configuration lacks.
    """

    timeout_s = 10.0
    """How long a client may send nothing, or take to read an answer."""

    def __init__(
        self,
        worker: Worker,
        port: int,
        host: str = EVERY_ADDRESS,  # the kubelet probes from outside the pod, by IPv4 or IPv6
        intakes: Intakes = tuple,
        idle_s: Idle = dict,
        missing: Callable[[], list[str]] = list,
    ) -> None:
        pages: dict[str, Callable[[str], Page]] = {
            "/livez": lambda _: _verdict(liveness_faults(worker, idle_s())),
            "/readyz": lambda _: _verdict(readiness_faults(worker, intakes()) + missing()),
            "/metrics": _metrics,
            "/due": lambda _: _due(worker, intakes()),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = self.timeout_s

            def do_GET(self) -> None:
                page = pages.get(self.path.split("?")[0], _not_found)
                status, kind, body = page(self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Suppress the access log: probes arrive every few seconds."""

        self._server = _Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving, once every request that came is answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def liveness_faults(worker: Worker, idle_s: Mapping[str, float] = NOTHING) -> list[str]:
    """Return a fault for each loop that stands still: of the worker, or of an intake."""
    faults = ["the worker's loop stands still"] if worker.idle_s() > FROZEN_AFTER_S else []
    stuck = (name for name, seconds in idle_s.items() if seconds > INTAKE_FROZEN_AFTER_S)
    return faults + [f"the loop of intake {name} stands still" for name in stuck]


def readiness_faults(worker: Worker, intakes: Iterable[IntakeRecord] = ()) -> list[str]:
    """Return the reasons why this process cannot deliver envelopes, or take messages in."""
    faults = [
        f"broker {lane.broker}: {lane.error}" for lane in worker.lanes.values() if not lane.is_open
    ]
    faults += [f"intake {each.name}: {each.error}" for each in intakes if not each.is_up]
    for view in worker.views:
        if view.is_unconfirmed:
            faults.append(f"route {view.route.name}: too few replicas confirm what is claimed")
        elif not view.is_heard:
            faults.append(_unheard(view))
        if view.is_unreadable:
            faults.append(f"route {view.route.name}: its records need a newer duebridge")
    return sorted(set(faults))


def _verdict(faults: list[str]) -> Page:
    body = "\n".join(faults) or "ok"
    return (503 if faults else 200), "text/plain; charset=utf-8", f"{body}\n".encode()


def _metrics(accept: str) -> Page:
    """Render the metrics; in OpenMetrics, which supports exemplars, if the client accepts it."""
    encode, kind = choose_encoder(accept)
    return 200, kind, encode(REGISTRY)


def _due(worker: Worker, intakes: Iterable[IntakeRecord]) -> Page:
    """Render backlogs at most a few seconds old; 503 if one is unknown, since unknown is not 0.

    An intake's lag that is unknown is left out: it must not hide the backlog of the store.
    """
    views = worker.views
    unknown = [each for each in views if not each.is_heard or each.stats is None]
    if unknown:
        answer = {"error": "; ".join(sorted({_unheard(each) for each in unknown}))}
        return 503, "application/json", msgspec.json.encode(answer)
    return 200, "application/json", msgspec.json.encode(due(views, intakes))


def _unheard(view: ShardView) -> str:
    return f"route {view.route.name}: {view.refusal or 'the store does not answer'}"


def _not_found(_: str) -> Page:
    return 404, "text/plain; charset=utf-8", b"expected /livez, /readyz, /metrics or /due\n"


KnownShard: TypeAlias = tuple[ShardView, Stats]


class Backlog(msgspec.Struct, frozen=True):
    """Envelopes waiting for delivery, now or within a window (seconds), that are not leased."""

    due_now: int
    oldest_due_age_s: float
    due_within_s: dict[str, int]


class Lag(msgspec.Struct, frozen=True):
    """Messages that wait at the broker of an intake."""

    lag: int


class DueReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The backlog of each route, their total, and what waits for each intake of this process."""

    routes: dict[str, Backlog]
    totals: Backlog
    intakes: dict[str, Lag] = {}


def due(views: Iterable[ShardView], intakes: Iterable[IntakeRecord] = ()) -> DueReport:
    """Return the backlogs of all shards whose statistics are known."""
    by_route: defaultdict[str, list[KnownShard]] = defaultdict(list)
    for view in views:
        if view.stats is not None:
            by_route[view.route.name].append((view, view.stats))
    everything = [shard for shards in by_route.values() for shard in shards]
    routes = {name: _sum(shards) for name, shards in by_route.items()}
    lags = {each.name: Lag(each.lag) for each in intakes if each.lag is not None}
    return DueReport(routes, _sum(everything), lags)


def _sum(shards: Sequence[KnownShard]) -> Backlog:
    found = [stats for _, stats in shards]
    return Backlog(
        due_now=sum(stats.due for stats in found),
        oldest_due_age_s=max((oldest_due_age_ms(*shard) for shard in shards), default=0) / 1000,
        due_within_s={
            "60": sum(stats.due_within_60s for stats in found),
            "300": sum(stats.due_within_300s for stats in found),
        },
    )


def oldest_due_age_ms(view: ShardView, stats: Stats) -> int:
    """Return the age in ms of the oldest due envelope; it keeps rising during a store outage."""
    if view.is_heard:
        return stats.oldest_due_age_ms
    firsts = (stats.oldest_due_at_ms, view.poll.first_pending_ms)
    oldest_ms = min((first for first in firsts if first != NONE), default=view.now_ms())
    return max(0, view.now_ms() - oldest_ms)
