"""The least rights that a configuration needs: of the store's user, and of each broker's."""

from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

from duebridge.config.broker_access import source_plan, using
from duebridge.config.durability import DurabilityNeeds
from duebridge.config.load import known_broker
from duebridge.config.models import Config
from duebridge.errors import ConfigError
from duebridge.store.server.rights import Role, rights_of, sentinel_rights

USER = "duebridge"
_SENTINELS = "# With Sentinel, the user by which clients ask the sentinels:"


def store_user(config: Config, role: Role) -> str:
    """Return the user that `store.url` names, else `duebridge`; one who only reads is another."""
    login, _, _ = urlsplit(config.store.url).netloc.rpartition("@")
    named = unquote(login.partition(":")[0])
    user = USER if not named or "$" in named else named
    return user if role == "operator" else f"{user}-readonly"


def store_rule(role: Role, namespace: str, user: str, needs: DurabilityNeeds) -> str:
    """Return a user's line of a Redis ACL file; the password is to be filled in.

    Raises `ConfigError` for an invalid namespace or user.
    """
    if not user or any(each.isspace() or each == "\0" for each in user):
        raise ConfigError(f"--user: expected a name without spaces; got {user!r}")
    rights = rights_of(role, namespace, reads_settings=needs.fsync)
    return " ".join(("user", user, "on", ">PASSWORD", *rights))


def store_lines(role: Role, namespace: str, user: str, needs: DurabilityNeeds) -> Iterator[str]:
    """Yield the commands for `redis-cli`, with comments."""
    yield f"# The store, namespace {namespace}: {_USES[role]}"
    yield "ACL SETUSER " + store_rule(role, namespace, user, needs).removeprefix("user ")
    yield _SENTINELS
    yield " ".join(("# ACL SETUSER", user, "on", ">PASSWORD", *sentinel_rights()))


def broker_lines(config: Config) -> Iterator[str]:
    """Yield the commands for every broker that routes or intakes use; raises `ConfigError`.

    Of an address or user given as a reference that cannot be resolved here, a placeholder is left.
    """
    targets = [target for route in config.routes.values() for target in route.targets().values()]
    targets += [each.dead_letter for each in config.intakes.values() if each.dead_letter]
    for name in config.brokers:
        used = list(dict.fromkeys(target for target in targets if target.broker == name))
        plans = [
            source_plan(config, intake)
            for intake, each in config.intakes.items()
            if each.source.broker == name
        ]
        settings = known_broker(config, name)
        with using(config, name) as kind:
            delivering = kind.permissions(settings, used)
            taking = kind.source_permissions(settings, plans)
        yield from _commented(f"# Broker {name}: to deliver, and to check the targets", delivering)
        yield from _commented(f"# Broker {name}: to take in, and to check the sources", taking)


def _commented(comment: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield comment
        yield from lines


_USES = {
    "operator": "workers, producers, intakes and every command",
    "readonly": "stats, ls, get, events, dead ls, dead show and doctor",
}
