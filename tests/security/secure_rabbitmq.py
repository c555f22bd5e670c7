"""A RabbitMQ of the test's own: TLS, a virtual host with an awkward name, users by certificate."""

import json
from pathlib import Path
from urllib.parse import quote

from tests.conftest import missing
from tests.contract.private_rabbitmq import PrivateRabbit
from tests.security import certificates as own
from tests.security.certificates import Certificates
from tests.store.servers import free_port, listens, wait_until

USER = "shop"
PASSWORD = "canary/p@ss:9d27%"  # noqa: S105 - must not come out again
VHOST = "orders/eu & co"
TLS_WITHIN_S = 10.0

CONFIG = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {server_certificate}
ssl_options.keyfile = {server_key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
load_definitions = {definitions}
"""
# A second listener, which wants a certificate: the configuration has one set of options for all.
DEMAND = """\
{{ok, Options}} = application:get_env(rabbit, ssl_options),
Strict = lists:keystore(fail_if_no_peer_cert, 1, Options, {{fail_if_no_peer_cert, true}}),
rabbit_networking:start_ssl_listener({{"127.0.0.1", {port}}}, Strict, 1).
"""


class SecureRabbit(PrivateRabbit):
    """`tls_port` takes any client, `mtls_port` only one with a certificate."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        super().__init__(folder)
        self.tls_port, self.mtls_port = free_port(), free_port()
        definitions = folder / "definitions.json"
        definitions.write_text(json.dumps(_definitions()))
        config = folder / ".services" / "rabbitmq" / "conf.d" / "secure.conf"
        config.parent.mkdir(parents=True)
        files = certificates._asdict()
        config.write_text(CONFIG.format(port=self.tls_port, definitions=definitions, **files))
        _enable(folder / "deploy" / "local" / "rabbitmq_server.py", "rabbitmq_auth_mechanism_ssl")

    @property
    def open_url(self) -> str:
        """Where the test itself makes queues and reads them."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{quote(VHOST, safe='')}"

    def start(self) -> None:
        super().start()
        try:  # it listens without TLS first
            wait_until(lambda: listens(self.tls_port), "TLS of RabbitMQ", TLS_WITHIN_S)
        except AssertionError:
            missing("a RabbitMQ with TLS", "install rabbitmq-server: a container's settings differ")
        self.control("eval", DEMAND.format(port=self.mtls_port))


def _definitions() -> dict[str, object]:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    may = [("guest", "/"), ("guest", VHOST), (USER, VHOST), (own.USER, VHOST)]
    return {
        "users": [
            {"name": "guest", "password": "guest", "tags": "administrator"},
            {"name": USER, "password": PASSWORD, "tags": ""},
            {"name": own.USER, "password_hash": "", "tags": ""},
        ],
        "vhosts": [{"name": "/"}, {"name": VHOST}],
        "permissions": [{"user": user, "vhost": vhost, **everything} for user, vhost in may],
    }


def _enable(program: Path, plugin: str) -> None:
    """Let the copied program enable a plugin; it writes the list anew at each start."""
    before = program.read_text()
    after = before.replace('"[].\\n"', f'"[{plugin}].\\n"')
    assert after != before
    program.write_text(after)
