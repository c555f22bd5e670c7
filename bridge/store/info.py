"""What a server tells of itself, node by node: a Cluster is as good as its worst one."""

from typing import Any, TypeAlias

from redis.cluster import RedisCluster

from bridge.store.connection import Connection

Info: TypeAlias = dict[str, Any]


def read_info(connection: Connection, *sections: str) -> list[Info]:
    """Return these sections of INFO, one mapping for each node; raises what the client does."""
    client: Any = connection.client
    options = {"target_nodes": RedisCluster.PRIMARIES} if is_cluster(connection) else {}
    nodes: dict[str, Info] = {}
    for section in sections:
        answer = client.info(section, **options)
        for name, found in (answer if _is_by_node(answer) else {"": answer}).items():
            nodes.setdefault(name, {}).update(found)
    return list(nodes.values())


def is_cluster(connection: Connection) -> bool:
    """Whether the store is a Cluster."""
    return isinstance(connection.client, RedisCluster)


def server_name(info: Info) -> tuple[str, str]:
    """Return `Redis` or `Valkey`, and its version."""
    if info.get("server_name") == "valkey":
        return "Valkey", str(info.get("valkey_version"))
    return "Redis", str(info.get("redis_version"))


def _is_by_node(answer: Info) -> bool:
    return bool(answer) and all(isinstance(value, dict) for value in answer.values())
