"""Reads the printed commands of `kafka-acls`."""

import shlex
from itertools import pairwise

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
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
