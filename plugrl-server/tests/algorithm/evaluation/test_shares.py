"""Equal shares, and the bias that they keep out."""

import numpy as np
import pytest
from plugrl_server.algorithm.evaluation.shares import Episode, Ledger, even_shares, shares
from plugrl_server.algorithm.feedback_rows import Client


@pytest.mark.parametrize(
    ("total", "parts", "expected"), [(10, 3, [4, 3, 3]), (2, 4, [1, 1, 0, 0]), (6, 2, [3, 3]), (0, 2, [0, 0])]
)
def test_shares_are_as_equal_as_they_go(total, parts, expected):
    assert even_shares(total, parts) == expected


@pytest.mark.parametrize(
    ("finished", "is_open", "expected"),
    [
        ([], [], []),
        ([0, 0], [True, True], [5, 5]),
        ([9, 0], [True, True], [5, 5]),  # haste earns nothing
        ([2, 0], [False, True], [2, 8]),  # what one leaves undone the other does
        ([9, 0], [False, True], [5, 5]),  # one that is gone keeps its share, no more
        ([1, 0, 0], [False, True, True], [1, 5, 4]),
        ([2, 3], [False, False], [2, 3]),  # nobody is left to do the rest
    ],
)
def test_shares_of_ten(finished, is_open, expected):
    assert shares(10, finished, is_open) == expected


def ledger(total, *clients):
    book = Ledger(total)
    for client in clients:
        book.join(client)
    return book


def finish(book, *episodes):
    for client, env, reward in episodes:
        book.add(Episode(client, env, reward))


def rewards(book):
    return [episode.reward for episode in book.counted()]


def test_the_first_episodes_of_each_environment_count_in_the_order_in_which_they_ended():
    book = ledger(4, Client((0, 1)))
    finish(book, (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 4))
    assert rewards(book) == [1, 2, 4]
    assert not book.is_complete()
    finish(book, (0, 1, 5))
    assert book.is_complete()
    assert rewards(book) == [1, 2, 4, 5]


def test_an_environment_that_has_not_finished_anything_is_waited_for():
    book = ledger(1, Client((0, 1)))
    finish(book, (0, 1, 7.0))
    assert not book.is_complete()
    assert rewards(book) == []
    finish(book, (0, 0, 8.0))
    assert rewards(book) == [8]


def test_what_a_connection_that_left_owes_is_done_by_the_others():
    gone, staying = Client((0,)), Client((0,))
    book = ledger(4, gone, staying)
    finish(book, (0, 0, 1), (1, 0, 2), (1, 0, 3), (1, 0, 4))
    assert not book.is_complete()
    gone.is_open = False
    assert book.is_complete()
    assert rewards(book) == [1, 2, 3, 4]


def test_connections_that_leave_when_all_is_done_change_nothing():
    gone, staying = Client((0,), is_open=False), Client((0,))
    book = ledger(4, gone, staying)
    finish(book, (0, 0, 1), (1, 0, 2), (1, 0, 3), (1, 0, 4))
    assert book.is_complete()
    staying.is_open = False
    finish(book, (1, 0, 5))
    assert book.is_complete()
    assert rewards(book) == [1, 2, 3, 4]


def test_a_connection_that_comes_late_takes_its_share():
    book = ledger(4, Client((0,)))
    finish(book, (0, 0, 1), (0, 0, 2), (0, 0, 3))
    book.join(Client((0,)))
    finish(book, (1, 0, 9), (0, 0, 4), (1, 0, 8))
    assert rewards(book) == [1, 2, 9, 8]
    assert book.is_complete()


def test_connections_are_told_apart_by_themselves_not_by_what_they_hold():
    first, second, stranger = Client((0,)), Client((0,)), Client((0,))
    book = ledger(1, first, second)
    assert [book.number(client) for client in (second, first, stranger, stranger)] == [1, 0, 2, 2]


def test_episodes_of_an_earlier_part_of_the_run_count_and_new_connections_do_the_rest():
    book = ledger(3)
    book.restore([Episode(0, 0, 1.0), Episode(1, 4, 2.0)])
    assert book.number(Client((0,))) == 2
    assert not book.is_complete()
    finish(book, (2, 0, 3.0))
    assert book.is_complete()
    assert rewards(book) == [1, 2, 3]


def run_side_by_side(total, envs, length_of, rng):
    """Environments in step with one another; the return of an episode is its length."""
    book = ledger(total, Client(tuple(range(envs))))
    lengths, at = [length_of(rng) for _ in range(envs)], [0] * envs
    while not book.is_complete():
        for env in range(envs):
            at[env] += 1
            if at[env] == lengths[env]:
                book.add(Episode(0, env, float(lengths[env])))
                lengths[env], at[env] = length_of(rng), 0
    return book


def test_short_episodes_weigh_no_more_than_long_ones():
    """Episodes of length 1 and 19, as likely as one another: the mean is 10; of the first ones to finish far less."""
    rng = np.random.default_rng(0)
    books = [run_side_by_side(16, 8, lambda rng: 1 if rng.random() < 0.5 else 19, rng) for _ in range(200)]
    counted = [np.mean(rewards(book)) for book in books]
    hasty = [np.mean([episode.reward for episode in book.episodes[:16]]) for book in books]
    error = 9 / np.sqrt(16 * len(books))
    assert abs(np.mean(counted) - 10) < 4 * error
    assert np.mean(hasty) < 8
