"""Uses every reply type first in many threads at once, again and again; run as a program.

Each round makes the types again. msgspec 0.22.0 ends the process by SIGSEGV where two threads
build what it knows of one type.
"""

import importlib
import sys
import threading
from contextlib import suppress

from duebridge.errors import StoreError
from duebridge.store.wire import leases, replies

THREADS = 8


def use(forms: list[type], start: threading.Barrier) -> None:
    start.wait()
    for form in forms:
        with suppress(StoreError):
            replies.read_reply([1] * len(form.__annotations__), form)


def main(rounds: int) -> None:
    sys.setswitchinterval(1e-6)
    for _ in range(rounds):
        importlib.reload(replies)
        importlib.reload(leases)
        names = {**vars(replies), **vars(leases)}.values()
        forms = [each for each in names if isinstance(each, type) and issubclass(each, tuple)]
        start = threading.Barrier(THREADS)
        threads = [threading.Thread(target=use, args=(forms, start)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(int(sys.argv[1]))
