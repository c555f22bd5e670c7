"""What producers were told and brokers got, life by life: the guarantee, seen from outside.

It knows nothing of the store but answers and hand-outs, so that it does not err with the model.
"""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass
class Story:
    """One accepted envelope. `out`: hand-outs of which nobody knows that they came to nothing;
    `out_before`: such ones of what it replaced.

    What `is_never_out` must not arrive; what `is_given_up` must not be handed out again.
    """

    due: int
    attempt: int = 0
    out: int = 0
    out_before: int = 0
    arrivals: int = 0
    is_in_doubt: bool = False
    is_never_out: bool = False
    is_given_up: bool = False
    is_ended: bool = False
    shunt_until: int = 0


@dataclass
class Ledger:
    """The stories of now, by id, and the rows that a cancel in the cold tier binds."""

    now: int
    stories: dict[str, Story] = field(default_factory=dict)
    bound_rows: set[int] = field(default_factory=set)

    # ── what producers and operators were told ──────────────────────────────────────────────────

    def scheduled(self, id: str, status: str, due: int) -> None:
        if status not in ("accepted", "replaced"):
            return
        before = self.stories.get(id)
        if before is not None and status == "replaced":
            before.is_never_out = not before.out
        replaced = before if before is not None and not before.is_ended else Story(0)
        self.stories[id] = Story(due, out_before=replaced.out + replaced.out_before)

    def cancelled(self, id: str, answer: str) -> None:
        if answer == "cancelled":
            story = self.stories[id]
            is_out = story.out + story.out_before
            assert not is_out, f"{id} is cancelled for certain while a delivery may be out"
            story.is_never_out = True
        if answer in ("cancelled", "in_flight"):
            self.stories[id].is_given_up = self.stories[id].is_ended = True

    def moved(self, id: str, answer: str, due: int) -> None:
        """Note the answer to a reschedule."""
        if answer == "rescheduled":
            assert not self.stories[id].out, f"{id} is moved while a delivery may be out"
            self.stories[id].due = due

    def operated(self, id: str, answer: str, due: int) -> None:
        """Note the answer to a replay or a drop."""
        story = self.stories.get(id)
        if story is None or answer not in ("replayed", "dropped"):
            return
        assert story.shunt_until <= self.now, (
            f"{id} is {answer} while its dead letter is on the way"
        )
        story.is_ended |= answer == "dropped"
        story.is_in_doubt, story.due = True, due

    def bound(self, rows: Collection[int]) -> None:
        """Note the cold rows that there were when a cancel was recorded."""
        self.bound_rows |= {*rows}

    def hydrated(self, row: int, status: str) -> None:
        taken = status in ("accepted", "replaced")
        assert not (taken and row in self.bound_rows), f"row {row} came back after its cancel"

    # ── what workers and brokers got ────────────────────────────────────────────────────────────

    def handed_out(self, id: str, attempt: int) -> Story:
        """Note that a claim leased an envelope, whether or not the reply arrived."""
        story = self.stories[id]
        assert story.due <= self.now, f"{id} was handed out before it was due"
        assert not story.is_given_up, f"{id} was handed out after its cancel"
        assert attempt > story.attempt, f"{id} was handed out with an attempt that did not rise"
        story.attempt, story.is_in_doubt = attempt, story.is_in_doubt or story.out > 0
        story.out += 1
        return story

    def shunting(self, id: str, until: int) -> Story:
        story = self.stories[id]
        assert story.shunt_until <= self.now, f"two workers send the dead letter of {id}"
        story.shunt_until = until
        return story

    def came_to_nothing(self, story: Story) -> None:
        """Note that a worker knows for certain that its delivery was not made."""
        story.out -= 1

    def arrive(self, story: Story) -> None:
        assert not story.is_never_out, "arrived after its cancel"
        story.arrivals += 1
        story.is_ended = True
        assert story.arrivals == 1 or story.is_in_doubt, "arrived twice without a fault"

    def letter_arrived(self, story: Story) -> None:
        story.is_ended = True

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    def check(self, kept: Collection[str]) -> None:
        """Assert that nothing accepted is lost: it is in the store, or has come to its end."""
        lost = [name for name, each in self.stories.items() if not each.is_ended]
        assert set(lost) <= set(kept), f"{lost} were accepted, {sorted(kept)} are kept"
