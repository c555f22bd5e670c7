"""A TCP proxy that can lose a reply after it forwarded the request, refuse, or fall silent."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CHUNK = 65536
TICK_S = 0.05


def _quiet() -> contextlib.suppress:
    """A connection that breaks is what the test wants."""
    return contextlib.suppress(OSError)


class Proxy:
    """Forwards to a port of this machine; what it does wrong is said before each call."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TICK_S)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._lose: bytes | None = None
        self._refuse = 0
        self._is_silent = self._is_closed = False
        self.lost = 0
        self.refused = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_reply_to(self, word: bytes) -> None:
        """Forward the next request that holds this word, and drop its reply and the connection."""
        with self._lock:
            self._lose = word

    def refuse(self, times: int) -> None:
        """Close the connections there are, and the next ones at once, so many times."""
        with self._lock:
            self._refuse = times

    def fall_silent(self) -> None:
        """From now on forward nothing, and keep every connection open."""
        self._is_silent = True

    def close(self) -> None:
        self._is_closed = True
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                if self._takes_refusal():
                    client.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _takes_refusal(self) -> bool:
        with self._lock:
            if not self._refuse:
                return False
            self._refuse -= 1
            self.refused += 1
            return True

    def _takes_loss(self, request: bytes) -> bool:
        with self._lock:
            if self._lose is None or self._lose not in request:
                return False
            self._lose = None
            self.lost += 1
            return True

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, _quiet():
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while not self._is_closed:
            readable, _, _ = select.select([client, server], [], [], TICK_S)
            if self._is_silent:
                continue
            if server in readable and not self._pass_on(server, client):
                return
            if client in readable:
                request = client.recv(CHUNK)
                if not request or self._takes_refusal():
                    return
                server.sendall(request)
                if self._takes_loss(request):
                    server.recv(CHUNK)
                    return

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> bool:
        data = source.recv(CHUNK)
        sink.sendall(data)
        return bool(data)


@contextmanager
def proxied(target_port: int) -> Iterator[Proxy]:
    proxy = Proxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
