"""Redis of the test's own, over TLS, with a user who may do what the documentation says."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import redis

from tests.security.certificates import Certificates
from tests.security.documented import documented_acl
from tests.store.servers import free_port, redis_server

USER = "duebridge"
PASSWORD = "canary/p@ss:9d27%?x"  # noqa: S105 - must not come out again


class SecureRedis(NamedTuple):
    """Two servers: `mtls` takes only clients with a certificate. `open` is without TLS."""

    tls: int
    mtls: int
    open: int


@contextmanager
def secure_redis(home: Path, certificates: Certificates) -> Iterator[SecureRedis]:
    tls, mtls = free_port(), free_port()
    with ExitStack() as stack:
        for port, demand in ((mtls, "yes"), (tls, "no")):
            place = home / demand
            place.mkdir()
            options = ["--tls-port", str(port), "--tls-auth-clients", demand]
            options += ["--tls-cert-file", certificates.server_certificate]
            options += ["--tls-key-file", certificates.server_key]
            options += ["--tls-ca-cert-file", certificates.ca]
            opened = stack.enter_context(redis_server(place, *options))
            with redis.Redis(port=opened) as admin:
                admin.config_set("appendonly", "yes")
                admin.execute_command(
                    "ACL", "SETUSER", USER, "on", f">{PASSWORD}", *documented_acl()
                )
        yield SecureRedis(tls, mtls, opened)
