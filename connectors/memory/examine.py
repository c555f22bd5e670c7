"""Nothing can be wrong with a broker in memory."""

from collections.abc import Mapping, Sequence

from bridge.examiner import Destination
from bridge.findings import About, Finding, ok


def examine(
    place: str,
    settings: Mapping[str, object],
    destinations: Sequence[Destination],
    deadline_s: float,
) -> list[Finding]:
    """Return that it takes everything; see `bridge.examiner.Examiner`."""
    del settings, deadline_s
    takes = [ok(About.ROUTE, each.place, "the memory broker takes all") for each in destinations]
    return [ok(About.BROKER, place, "is in this process: nothing of it outlives it"), *takes]
