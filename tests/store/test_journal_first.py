from duebridge.store.journal import Journal
from tests.store.desk import Desk


def test_first_of_a_journal_is_the_oldest_entry_that_is_there(desk: Desk) -> None:
    journal = Journal(desk.connection, desk.shard)
    assert journal.first() == 1
    for name in "abc":
        desk.pending(name)
    assert journal.first() == 1
    desk.client.xdel(desk.key("journal"), "1-0")
    assert journal.first() == 2
    desk.client.xdel(desk.key("journal"), "2-0", "3-0")
    assert journal.first() == 4
