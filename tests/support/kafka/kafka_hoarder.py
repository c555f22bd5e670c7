"""Receives slowly from a topic that has far more, and prints by how many MiB its memory grew.

python -m tests.support.kafka.kafka_hoarder BOOTSTRAP CLIENT TOPIC BATCHES
"""

import sys
from pathlib import Path

from tests.support.kafka.kafka_sources import open_source

PAGE = 4096


def main(bootstrap: str, client: str, topic: str, batches: str) -> None:
    source = open_source(bootstrap, client, topic, in_hand_bytes=8 * 1024 * 1024)
    base = resident()
    most = 0
    for _ in range(int(batches)):
        while not (batch := source.receive(1.0)):
            pass
        source.keep_alive()
        source.settle(batch)
        most = max(most, resident())
    sys.stdout.write(f"{(most - base) // 1024 // 1024}\n")
    source.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    main(*sys.argv[1:])
