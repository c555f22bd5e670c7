"""The valid names of a topic."""

import re

EXPECTED = "letters, digits, dots (not alone), dashes and underscores"
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")


def is_topic(name: str) -> bool:
    """Return whether a topic may have this name."""
    return _TOPIC.fullmatch(name) is not None
