"""Reads the printed commands of `kafka-acls`, and puts rules in force."""

import shlex
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

OPERATIONS = {
    "Read": "READ",
    "Write": "WRITE",
    "Describe": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
}


def acls_of(line: str) -> list[ACL]:
    """Return what a printed command would create: Kafka's own tool is not installed here."""
    words = shlex.split(line)
    given = list(pairwise(words))

    def value(option: str, default: str = "literal") -> str:
        return next((after for name, after in given if name == option), default)

    kind = ACLResourcePatternType[value("--resource-pattern-type").upper()]
    is_group = "--group" in words
    resource = (
        ResourcePattern(ResourceType.GROUP, value("--group"), kind)
        if is_group
        else ResourcePattern(ResourceType.TOPIC, value("--topic"), kind)
    )
    names = [after for name, after in given if name == "--operation"]
    user = value("--allow-principal")
    return [
        ACL(user, "*", ACLOperation[OPERATIONS[name]], ACLPermissionType.ALLOW, resource)
        for name in names
    ]


def put_in_force(port: int, acls: Sequence[ACL]) -> None:
    """Create rules, over a listener that asks nobody anything."""
    with closing(KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")) as admin:
        admin.create_acls(acls)


def all_but(operation: ACLOperation, user: str, topic: str) -> list[ACL]:
    """Return the rules that allow a user everything with a topic but this operation."""
    resource = ResourcePattern(ResourceType.TOPIC, topic)
    return [
        ACL(f"User:{user}", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, resource),
        ACL(f"User:{user}", "*", operation, ACLPermissionType.DENY, resource),
    ]
