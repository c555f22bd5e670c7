"""One small port for probes, metrics and scalers: `/livez`, `/readyz`, `/metrics`, `/due`.

Liveness asks neither the store nor a broker: only whether the workers' loops turn. Readiness says
whether the store answers, whether a lane is stopped, and whether a route needs a newer worker.
"""

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from bridge.backlog import due
from bridge.station import Station
from bridge.worker import Worker

# Longer than a call of the store or a ping of a broker may wait; with three probes, four seconds
# apart, and a grace period of three, still less than the 30 s in which a frozen worker is replaced.
FROZEN_AFTER_S = 12.0

Page = tuple[int, str, bytes]


class HealthServer:
    """Answers probes in threads of its own; `port` 0 takes a free one."""

    def __init__(self, workers: Sequence[Worker], port: int, host: str = "0.0.0.0") -> None:  # noqa: S104 - probes come from outside the pod
        pages: dict[str, Callable[[str], Page]] = {
            "/livez": lambda _: _verdict(liveness_faults(workers)),
            "/readyz": lambda _: _verdict(readiness_faults(workers)),
            "/metrics": _metrics,
            "/due": lambda _: _due(workers),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.split("?")[0], _not_found)
                status, kind, body = page(self.headers.get("Accept", ""))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing: probes come every few seconds."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def liveness_faults(workers: Sequence[Worker]) -> list[str]:
    """Return the workers whose loop has not gone on for `FROZEN_AFTER_S`."""
    return [
        f"worker of {worker.lane.broker}: its loop stands still"
        for worker in workers
        if worker.idle_s() > FROZEN_AFTER_S
    ]


def readiness_faults(workers: Sequence[Worker]) -> list[str]:
    """Return what keeps envelopes from being delivered by this process."""
    faults = [f"lane {each.lane.broker}: stopped" for each in workers if each.lane.is_stopped]
    for station in _stations(workers):
        if not station.is_heard:
            faults.append(_unheard(station))
        if station.is_unreadable:
            faults.append(f"route {station.route.name}: its records need a newer duebridge")
    return sorted(set(faults))


def _verdict(faults: list[str]) -> Page:
    body = "\n".join(faults) or "ok"
    return (503 if faults else 200), "text/plain; charset=utf-8", f"{body}\n".encode()


def _metrics(accept: str) -> Page:
    """Answer in OpenMetrics, which alone has exemplars, where that is asked for."""
    encode, kind = choose_encoder(accept)
    return 200, kind, encode(REGISTRY)


def _due(workers: Sequence[Worker]) -> Page:
    """Answer with figures at most a few seconds old; an unknown backlog is not one of nothing."""
    stations = _stations(workers)
    unknown = [each for each in stations if not each.is_heard or each.stats is None]
    if unknown:
        answer = {"error": "; ".join(sorted({_unheard(each) for each in unknown}))}
        return 503, "application/json", msgspec.json.encode(answer)
    return 200, "application/json", msgspec.json.encode(due(stations))


def _stations(workers: Sequence[Worker]) -> list[Station]:
    return [station for worker in workers for station in worker.stations]


def _unheard(station: Station) -> str:
    return f"route {station.route.name}: the store does not answer"


def _not_found(_: str) -> Page:
    return 404, "text/plain; charset=utf-8", b"expected /livez, /readyz, /metrics or /due\n"
