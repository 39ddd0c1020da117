"""received = stored + discarded, for each connection and in total (issue: accounting)."""

from plugrl_server.training.accounting import KEPT_CONNECTIONS, Accounting, Discard


def settled(accounting, name, received, discarded=None):
    count = accounting.open(name)
    count.receive(received)
    count.settle(received, discarded or {})
    return count


def test_rows_that_are_not_discarded_are_stored():
    count = settled(Accounting(), "one", 5, {Discard.STALE: 2, Discard.NOT_FINITE: 1})
    assert (count.received, count.stored, count.discarded.total(), count.pending) == (5, 2, 3, 0)
    assert str(count) == "received 5 = stored 2 + discarded 3 (not_finite 1, stale 2)"


def test_the_total_is_the_sum_of_open_and_ended_connections():
    accounting = Accounting()
    first = settled(accounting, "one", 5, {Discard.STALE: 2})
    settled(accounting, "two", 3)
    accounting.close(first, handshake=True)
    total = accounting.total
    assert (total.received, total.stored, total.discarded[Discard.STALE]) == (8, 6, 2)


def test_the_end_leaves_no_row_unaccounted_for():
    accounting = Accounting()
    cut, still_open = accounting.open("one"), accounting.open("two")
    cut.receive(3)
    still_open.receive(2)
    accounting.close(cut, handshake=False)
    assert accounting.total.pending == 5
    accounting.finish()
    assert accounting.total.pending == 0
    assert accounting.total.discarded == {Discard.AFTER_CLOSE: 5}


def test_a_row_of_a_connection_that_has_gone_may_still_be_stored():
    accounting = Accounting()
    count = accounting.open("one")
    count.receive(1)
    accounting.close(count, handshake=False)
    count.settle(1, {})
    accounting.finish()
    assert (accounting.total.stored, accounting.total.discarded.total()) == (1, 0)


def test_the_table_tells_how_each_connection_ended():
    accounting = Accounting()
    accounting.close(settled(accounting, "connection 1 (10.0.0.7:40000)", 5), handshake=True)
    accounting.close(settled(accounting, "connection 2 (10.0.0.8:40000)", 1, {Discard.AFTER_CLOSE: 1}), handshake=False)
    accounting.close(accounting.open("said nothing"), handshake=True)
    assert accounting.table().splitlines() == [
        "feedback rows",
        "  connection 1 (10.0.0.7:40000)  closed  received 5 = stored 5 + discarded 0",
        "  connection 2 (10.0.0.8:40000)  cut     received 1 = stored 0 + discarded 1 (after_close 1)",
        "  total                                  received 6 = stored 5 + discarded 1 (after_close 1)",
    ]


def test_many_connections_take_bounded_memory_and_the_total_stays_right():
    """Lesson 5."""
    accounting = Accounting()
    for number in range(KEPT_CONNECTIONS + 50):
        accounting.close(settled(accounting, str(number), 2), handshake=True)
    assert len(accounting.connections) == KEPT_CONNECTIONS
    assert accounting.total.received == 2 * (KEPT_CONNECTIONS + 50)
    assert "earlier connections" in accounting.table()
