"""Reserves room in the windows of a lane and of a target, so that no two loops take the same."""

from duebridge.worker.lanes.lane import Lane
from duebridge.worker.lanes.targets import TargetHealth
from duebridge.worker.lanes.window import Load


class Reservation:
    """The room of a claim while it asks the store, so that no other loop claims for it."""

    def __init__(
        self,
        lane: Lane,
        room: Load,
        health: TargetHealth | None = None,
        *,
        is_letter: bool = False,
        is_suspect: bool = False,
    ) -> None:
        self.room = room
        self.is_suspect = is_suspect
        self.is_for_target = health is not None
        self._lane = lane
        self._windows = [lane.window, health.window] if health else [lane.window]
        self._letters = room.envelopes if is_letter else 0
        self._is_released = False
        lane.has_suspect |= is_suspect
        self._lane.letters += self._letters
        for window in self._windows:
            window.reserved.append(room)

    def release(self) -> bool:
        """Give the room back; return whether it was still reserved.

        Under the lane's lock what was claimed may be counted before another loop looks.
        """
        with self._lane.lock:
            if self._is_released:
                return False
            self._is_released = True
            self._lane.letters -= self._letters
            self._lane.has_suspect &= not self.is_suspect
            for window in self._windows:
                window.reserved.remove(self.room)
            return True
