"""The least rights of a user of the store: commands, keys and channels of one namespace.

A Redis user has one list of commands for all keys, and every script that writes uses the same
commands: Redis can tell who may only read, but not who may schedule from who may operate.
"""

from typing import Literal, TypeAlias

from duebridge.config.fields import checked_name

Role: TypeAlias = Literal["operator", "readonly"]

CONNECT = ("ping", "select", "client|setname")
SCRIPTS = ("evalsha", "eval", "script|load")
READ = (
    *("info", "time", "role", "pubsub|numsub", "pubsub|shardnumsub"),
    *("hget", "hgetall", "hmget", "hlen", "hexists", "hscan", "mget"),
    *("zcard", "zcount", "zrange", "zrank", "zscore", "zmscore"),
    *("xlen", "xrange", "xrevrange"),
)
WRITE = (
    *("hset", "hsetnx", "hdel", "hincrby", "zadd", "zrem", "zremrangebyrank", "xadd", "xdel"),
    *("bitfield", "set", "incrby", "pttl", "multi", "exec", "unlink", "wait"),
    *("publish", "spublish", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"),
)
CLUSTER = (
    *("cluster|slots", "cluster|shards", "cluster|nodes", "cluster|myid"),
    *("command", "readonly", "asking"),
)
SENTINEL = (
    *("ping", "client|setname", "role", "subscribe", "unsubscribe"),
    *("sentinel|masters", "sentinel|master", "sentinel|get-master-addr-by-name"),
    *("sentinel|replicas", "sentinel|sentinels"),
)


def commands_of(role: Role) -> tuple[str, ...]:
    """Return the commands and subcommands of a role, as `ACL SETUSER` names them."""
    writing = WRITE if role == "operator" else ()
    return (*CONNECT, *SCRIPTS, *READ, *writing, *CLUSTER)


def rights_of(role: Role, namespace: str, *, reads_settings: bool = False) -> list[str]:
    """Return the words of `ACL SETUSER` for a role: all that it may do, and nothing else.

    They take away what the user had before. `reads_settings`: a durability is `fsync`, which the
    start compares with the server's settings. Raises `ConfigError` for an invalid namespace.
    """
    checked = checked_name("namespace", namespace)
    keys = f"~{{{checked}:*}}:*", f"~{{{checked}}}:*"
    channels = [f"&{{{checked}:*}}:wake"] if role == "operator" else []
    more = ("config|get",) * reads_settings
    allowed = (f"+{command}" for command in (*commands_of(role), *more))
    return ["resetkeys", *keys, "resetchannels", *channels, "-@all", *allowed]


def sentinel_rights() -> list[str]:
    """Return the words of `ACL SETUSER` for the user by which clients ask the sentinels."""
    allowed = (f"+{command}" for command in SENTINEL)
    return ["resetkeys", "resetchannels", "&+switch-master", "-@all", *allowed]
