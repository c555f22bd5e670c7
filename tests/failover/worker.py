"""`duebridge run` with a broker in memory, and a line for each delivery before it is confirmed.

python -m tests.failover.worker HOME NAME --config duebridge.yaml run
"""

import sys
from pathlib import Path

from duebridge.cli import main
from duebridge.ports.publisher import Delivery
from duebridge_connectors.memory import MemoryPublisher
from tests.support.model.histories import Historian, Phase, Subject

BROKER = {"type": "memory", "options": {"name": "failover"}}

if __name__ == "__main__":
    history = Historian(Path(sys.argv.pop(1)), sys.argv.pop(1))

    def note(delivery: Delivery) -> None:
        history.note(Subject.TARGET, Phase.OK, delivery.id)

    MemoryPublisher.named(BROKER["options"]["name"]).script(note)
    sys.exit(main())
