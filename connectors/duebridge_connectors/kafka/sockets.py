"""A plain connection that closes what it opened when it fails; kafka-python's own leaves it."""

from typing import Any

from kafka.net.inet import KafkaNetSocket

# kafka-python chooses the class of a connection by the scheme of its option `proxy_url`.
DIRECT = "duebridge-direct://"


class _DirectSocket(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("duebridge-direct",)

    async def sock_connect(
        self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None
    ) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
