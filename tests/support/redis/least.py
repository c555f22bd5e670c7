"""The store as the user whose rights `duebridge acl` prints."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from duebridge.store.server.connection import Connection, open_connection
from duebridge.store.server.rights import Role, rights_of
from tests.support.redis.redis_node import RedisNode

USER, PASSWORD = "least", "least-pw"
NAMESPACES = "test-*"  # of all the desks of a session


def grant(
    admin: Any, namespace: str, user: str = USER, role: Role = "operator", password: str = PASSWORD
) -> None:
    """Make a user with the rights of a role in a namespace, or in all that a glob matches."""
    words = [word.replace("NAMESPACE", namespace) for word in rights_of(role, "NAMESPACE")]
    options = {"target_nodes": "all"} if isinstance(admin, redis.RedisCluster) else {}
    admin.execute_command("ACL", "SETUSER", user, "on", f">{password}", *words, **options)


@contextmanager
def granted(nodes: Sequence[RedisNode], namespace: str) -> Iterator[None]:
    """Make that user in each server of a set; fail at the end if one refused it anything."""
    for each in nodes:
        with each.client() as admin:
            grant(admin, namespace)
    yield
    refused = [each.ask("ACL", "LOG") for each in nodes if each.role()]
    assert refused == [[]] * len(refused), "rights that duebridge acl lacks"


def url_as(url: str, user: str = USER, password: str = PASSWORD) -> str:
    """Return a URL without a login with one."""
    return url.replace("://", f"://{user}:{password}@", 1)


def admin_of(connection: Connection) -> Any:
    """Return the client of one that may do everything on the connection's server."""
    return getattr(connection, "admin", connection.client)


class LeastConnection(Connection):
    """A connection of the least user; `admin` is the client of one that may do everything."""

    def __init__(self, url: str) -> None:
        self._at = open_connection(url)
        self.admin: Any = self._at.client
        grant(self.admin, NAMESPACES)
        super().__init__(open_connection(url_as(url)).client)

    def check_nothing_refused(self) -> None:
        """Fail if the user asked for a right that it has not, even if nobody noticed."""
        everywhere = {"target_nodes": "all"} if self.is_cluster else {}
        found = self.admin.execute_command("ACL LOG", **everywhere)
        logs = found.values() if isinstance(found, dict) else [found]
        refused = {(each["reason"], each["object"]) for log in logs for each in log}
        assert refused == set(), "rights that duebridge acl lacks"

    def close(self) -> None:
        super().close()
        self._at.close()
