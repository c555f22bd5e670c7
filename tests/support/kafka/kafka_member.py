"""A member of a group as a process: keeps each batch in a file, then settles it.

python -m tests.support.kafka.kafka_member BOOTSTRAP CLIENT TOPIC FILE [FREEZE_AT]
With FREEZE_AT it stops itself (SIGSTOP) with that batch in hand, before it settles.
"""

import logging
import os
import signal
import sys

from duebridge.ports.publisher import BrokerUnavailable
from tests.support.kafka.kafka_sources import open_member


def main(bootstrap: str, client: str, topic: str, file: str, freeze_at: str = "0") -> None:
    logging.getLogger("duebridge_connectors.kafka.source").setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stderr)
    source = open_member(bootstrap, client, topic)
    taken = 0
    with open(file, "a", buffering=1) as store:
        while True:
            try:
                if not (batch := source.receive(0.2)):
                    continue
                taken += 1
                store.write("".join(f"{(each.body or b'').decode()} {each.id}\n" for each in batch))
                if taken == int(freeze_at):
                    os.kill(os.getpid(), signal.SIGSTOP)
                source.settle(batch)
            except BrokerUnavailable as error:
                sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
