"""Appends each delivery to the file of its target, as one line of JSON."""

import os
import threading
from collections import defaultdict

import msgspec

from duebridge.ports.publisher import CONFIRMED, BrokerUnavailable, Outcome, Reason, Verdict


class FilePublisher:
    """A `Publisher` whose broker is a directory."""

    def __init__(self, directory):
        self._directory = directory
        self._lock = threading.Lock()
        self._is_closed = False

    def publish(self, batch):
        """Return one outcome per delivery, in the same order."""
        try:
            self.ping()
        except BrokerUnavailable as error:
            return [_outcome(Verdict.UNAVAILABLE, error)] * len(batch)
        by_path = defaultdict(list)
        for delivery in batch:
            by_path[delivery.target.path].append(_line(delivery))
        outcomes = {path: self._append(path, lines) for path, lines in by_path.items()}
        return [outcomes[delivery.target.path] for delivery in batch]

    def ping(self):
        """Raise `BrokerUnavailable` where the directory is missing."""
        if self._is_closed or not self._directory.is_dir():
            raise BrokerUnavailable(f"no directory {self._directory}")

    def close(self):
        """Refuse what comes later."""
        self._is_closed = True

    def _append(self, path, lines):
        try:
            with self._lock, open(self._directory / path, "r+b") as file:  # creates none
                file.seek(0, os.SEEK_END)
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())  # only now it may be confirmed
        except FileNotFoundError as error:
            return _outcome(Verdict.TARGET_FAILED, error, Reason.TARGET_MISSING)
        except OSError as error:  # part of it may be there
            return _outcome(Verdict.INDETERMINATE, error)
        return CONFIRMED


def _outcome(verdict, error, reason=Reason.ATTEMPTS_EXHAUSTED):
    return Outcome(verdict, reason, type(error).__name__, str(error))


def _line(delivery):
    headers = [(name, _bytes(value)) for name, value in delivery.headers]
    fields = {"id": delivery.id, "key": delivery.key, "headers": headers, "body": delivery.body}
    return msgspec.json.encode(fields) + b"\n"  # bytes become base64


def _bytes(value):
    if value is None or isinstance(value, bytes):
        return value
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
