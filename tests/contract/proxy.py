"""A way to a broker that can be cut: what was sent is really there, only its answer is lost."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STEP_S = 30.0


class Proxy:
    """Passes bytes between a client and a broker, and counts those on their way to the broker."""

    def __init__(self, broker_port: int) -> None:
        self._broker = ("127.0.0.1", broker_port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._answers = threading.Event()
        self._answers.set()
        self._passed = 0
        self._progress = threading.Condition()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def hold(self) -> None:
        """Keep back whatever the broker answers, until `release`."""
        self._answers.clear()
        self.count_anew()

    def count_anew(self) -> None:
        """Forget what has passed."""
        with self._progress:
            self._passed = 0

    def release(self) -> None:
        self._answers.set()

    def has_passed(self, size: int) -> bool:
        """Return True as soon as so many bytes went to the broker since the last count."""
        with self._progress:
            return self._progress.wait_for(lambda: self._passed >= size, STEP_S)

    def cut(self) -> None:
        """End every connection; new ones may come."""
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.release()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(STEP_S)
        for sock in self._sockets:
            sock.close()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._sockets.append(client)
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self._broker)
        except OSError:  # the broker is down: so are we
            _end(client)
            return
        self._sockets.append(broker)
        self._start(self._pass_requests, client, broker)
        self._start(self._pass_answers, broker, client)

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                broker.sendall(data)
                with self._progress:
                    self._passed += len(data)
                    self._progress.notify_all()
        _end(broker)

    def _pass_answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                self._answers.wait(STEP_S)
                client.sendall(data)
        _end(client)


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(broker_port: int) -> Iterator[Proxy]:
    proxy = Proxy(broker_port)
    try:
        yield proxy
    finally:
        proxy.close()
