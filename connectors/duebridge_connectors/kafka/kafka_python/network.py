"""Extends kafka-python's networking: records failures, reconnects seldom, leaks no socket.

The bootstrap passes over a server that is dead or silent while another one may answer.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakSet

from kafka import errors as vendor
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from duebridge_connectors.kafka.login import Login

_LOGIN_ERRORS = (vendor.SaslAuthenticationFailedError, vendor.UnsupportedSaslMechanismError)


# A connection that ends sooner delays the next one as a failed one does.
LASTED_S = 5.0


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """Keeps the cause of the last failed connection in `failure`, else None.

    kafka-python only logs that cause, and reports a failed bootstrap as a timeout. It also forgets
    the back-off of a connection that was accepted and then ended at once, as by a proxy whose
    broker is away.
    """

    failure: Exception | None = None

    def __init__(self, net: Any, login: Login | None, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._login = login
        self._transports: WeakSet[Any] = WeakSet()
        self._all_bootstraps = self.cluster.bootstrap_brokers
        self.cluster.bootstrap_brokers = self._bootstraps

    def _bootstraps(self) -> list[Any]:
        """Return the bootstrap servers to choose from: kafka-python waits for one that failed."""
        known: list[Any] = self._all_bootstraps()
        return [each for each in known if not self.connection_delay(each.node_id)] or known

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **how: Any) -> Any:
        """Leave half of the time to bootstrap to the other servers; kafka-python leaves none."""
        has_others = len(self._all_bootstraps()) > 1
        if timeout_ms is not None and has_others and self.cluster.is_bootstrap(node_id):
            timeout_ms /= 2
        return super().get_connection(node_id, timeout_ms, **how)

    async def _connect(
        self, node: Any, conn: Any, reset_backoff_on_connect: bool = True, **how: Any
    ) -> None:
        started_at = monotonic()
        self._log_in_as_now(conn)
        await super()._connect(node, conn, reset_backoff_on_connect=False, **how)
        if reset_backoff_on_connect:  # not a bootstrap, which counts by itself
            conn.close_future.add_both(partial(self._note_end, node.node_id, started_at))
        future = conn.init_future
        failure = future.exception if future.failed() else None
        # An attempt cut short by the deadline says less than the previous failure.
        if self.failure is None or not _is_timeout(failure):
            self.failure = failure

    def _log_in_as_now(self, conn: Any) -> None:
        """Let a connection use the user and the password that the settings have now."""
        found = None if self._login is None else self._login.current()
        if found is not None:
            conn.config["sasl_plain_username"], conn.config["sasl_plain_password"] = found

    def _note_end(self, node_id: Any, started_at: float, _: object) -> None:
        if monotonic() - started_at >= LASTED_S:
            self.reset_backoff(node_id)
        elif not self.connection_delay(node_id):  # else it counted already
            self.update_backoff(node_id)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        config = self.config
        sock = await create_connection(
            self._net,
            node.host,
            node.port,
            config["socket_options"],
            proxy_url=config["proxy_url"],
            timeout_at=timeout_at,
        )
        try:
            if self.ssl_enabled:
                options = {name: config[name] for name in config if name.startswith("ssl_")}
                transport = KafkaSSLTransport(self._net, sock, host=node.host, **options)
                sock = transport._sock
            else:
                transport = KafkaTCPTransport(self._net, sock, host=node.host)
            await transport.handshake()
        except BaseException as error:
            sock.close()
            if not isinstance(error, Exception):  # cancelled
                raise
            raise vendor.KafkaConnectionError(f"Handshake failed: {error}") from error
        transport._sock_recv = partial(_data_before_error, transport._sock_recv)
        self._transports.add(transport)
        return transport

    def close_sockets(self) -> None:
        """Close what `close` left open: a socket with bytes to send waits for a loop that ended."""
        for transport in self._transports:
            if transport._sock is not None:
                transport._sock.close()

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Fail the bootstrap after one refused login: retries might lock the account."""
        if isinstance(self.failure, _LOGIN_ERRORS) and not self.bootstrapped:
            raise self.failure
        super().maybe_raise_auth_failure(node_id)


def _is_timeout(failure: BaseException | None) -> bool:
    """Whether a connection ended by its deadline: most such errors come as what they led to."""
    while failure is not None and not isinstance(failure, vendor.KafkaTimeoutError):
        failure = failure.__cause__ or failure.__context__
    return failure is not None


class NetworkClient(KafkaNetClient):  # type: ignore[misc]
    """kafka-python's client, with a loop and a manager of its own; `close` closes every socket."""

    def __init__(self, login: Login | None, **config: Any) -> None:
        net = NetworkSelector(**config)
        super().__init__(net, ConnectionManager(net, login, **config), **config)

    def close(self, node_id: Any = None) -> None:
        """Close the connection to a node, or all of them and the loop."""
        super().close(node_id)
        if node_id is None:
            self._manager.close_sockets()


def _data_before_error(receive: Callable[[], tuple[bytes, Any]]) -> tuple[bytes, Any]:
    """Return data and defer the error that came with it to the next read.

    kafka-python drops such data, such as the refusal of a login before the broker closes.
    """
    data, error = receive()
    return (data, None) if data else (data, error)


# kafka-python selects the socket class by the scheme of its option `proxy_url`.
DIRECT = "duebridge-direct://"


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]
    """Closes the socket if connecting fails; kafka-python leaves it open."""

    SCHEMES = ("duebridge-direct",)

    async def sock_connect(
        self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None
    ) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
