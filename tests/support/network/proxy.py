"""A TCP proxy that loses replies, holds them back, refuses, falls silent or ends connections."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 65536
TICK_S = 0.05
STEP_S = 30.0


class Proxy:
    """Forwards to a port of this machine, and counts the bytes on their way there."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TICK_S)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._lose: bytes | None = None
        self._refuse = self._refuse_then = 0
        self._is_silent = self._is_closed = self._is_held = False
        self._cuts = 0
        self._passed = 0
        self._progress = threading.Condition()
        self.lost = 0
        self.refused = 0
        self.ends: list[str] = []  # how clients ended their connections: closed or reset
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose_reply_to(self, word: bytes, then_refuse: int = 0) -> None:
        """Forward the next request that holds this word, and drop its reply and the connection.

        From then on it refuses so many times.
        """
        with self._lock:
            self._lose, self._refuse_then = word, then_refuse

    def refuse(self, times: int) -> None:
        """Close the connections there are, and the next ones at once, so many times."""
        with self._lock:
            self._refuse = times

    def fall_silent(self) -> None:
        """From now on forward nothing, and keep every connection open."""
        self._is_silent = True

    def hold(self) -> None:
        """Keep back whatever the server answers, until `release`."""
        self._is_held = True
        self.count_anew()

    def release(self) -> None:
        self._is_held = False

    def cut(self) -> None:
        """End every connection; new ones may come."""
        self._cuts += 1
        self.release()

    def lead_to(self, port: int) -> None:
        """From now on forward new connections to another port; those there are stay."""
        self._target = ("127.0.0.1", port)

    def count_anew(self) -> None:
        """Forget what has passed."""
        with self._progress:
            self._passed = 0

    def has_passed(self, size: int) -> bool:
        """Return True as soon as so many bytes went to the server since the last count."""
        with self._progress:
            return self._progress.wait_for(lambda: self._passed >= size, STEP_S)

    def close(self) -> None:
        self._is_closed = True
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                client.setblocking(True)
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
            self._lose, self._refuse = None, self._refuse + self._refuse_then
            self.lost += 1
            return True

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        cuts = self._cuts
        while not self._is_closed and self._cuts == cuts:
            heard = [client] if self._is_held else [client, server]
            readable, _, _ = select.select(heard, [], [], TICK_S)
            if self._is_silent:
                continue
            if server in readable and not self._is_held and not self._pass_on(server, client):
                return
            if client in readable:
                request = self._received(client)
                if not request or self._takes_refusal():
                    return
                server.sendall(request)
                self._count(request)
                if self._takes_loss(request):
                    self._await_reply(client, server)
                    return

    def _await_reply(self, client: socket.socket, server: socket.socket) -> None:
        """Return once the server replies; the rest of a large request may be on its way yet."""
        while not self._is_closed:
            readable, _, _ = select.select([client, server], [], [], TICK_S)
            if server in readable or (client in readable and not self._pass_on(client, server)):
                return

    def _received(self, client: socket.socket) -> bytes:
        try:
            request = client.recv(CHUNK)
        except ConnectionResetError:
            self.ends.append("reset")
            raise
        if not request:
            self.ends.append("closed")
        return request

    def _count(self, request: bytes) -> None:
        with self._progress:
            self._passed += len(request)
            self._progress.notify_all()

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
