"""Which requests share a batch, and when."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from plugrl_server.serving.batcher import Batcher, Request, batch_of


def request(session, rows=1, layout="a", arrived=0.0):
    obs = {
        "images": {},
        "states": {"obs": np.full((rows, 2), hash(session) % 1000)},
        "text": np.array([session] * rows),
    }
    return Request(session, np.arange(rows), obs, layout, arrived)


def batcher(*requests, **options):
    made = Batcher(**options)
    for each in requests:
        made.add(each)
    return made


def sessions(batch):
    return None if batch is None else [request.session for request in batch.requests]


def test_nothing_waits_at_first():
    assert batcher().take(0.0, 1) is None
    assert batcher().deadline() is None


def test_whatever_waits_when_the_policy_is_free_forms_the_next_batch():
    made = batcher(request("x", 2), request("y", 1))
    batch = made.take(0.0, 5)
    assert batch.rows == 3
    assert batch.obs["text"].tolist() == ["x", "x", "y"]
    assert [(part.session, rows) for part, rows in batch.parts()] == [("x", slice(0, 2)), ("y", slice(2, 3))]
    assert made.take(0.0, 5) is None


def test_a_lone_request_is_not_copied():
    alone = request("x", 2)
    assert batch_of([alone]).obs is alone.obs


def test_a_minimum_is_waited_for_but_not_for_long():
    """--mini-infer-batch-size is bounded by --infer-wait-ms, so it can never deadlock."""
    made = batcher(request("x", 2, arrived=1.0), min_rows=4, max_wait=0.5)
    assert made.deadline() == 1.5
    assert made.take(1.4, 9) is None
    assert sessions(made.take(1.5, 9)) == ["x"]


def test_a_minimum_that_is_reached_is_not_waited_for():
    made = batcher(request("x", 2), min_rows=4, max_wait=9)
    assert made.take(0.0, 9) is None
    made.add(request("y", 2))
    assert sessions(made.take(0.0, 9)) == ["x", "y"]


def test_when_all_connections_wait_nobody_is_left_to_wait_for():
    assert sessions(batcher(request("x"), request("y"), min_rows=9, max_wait=9).take(0.0, 2)) == ["x", "y"]


def test_only_equal_layouts_share_a_batch_and_the_oldest_goes_first():
    made = batcher(
        request("x", layout="b", arrived=1), request("y", layout="a", arrived=0), request("z", layout="b", arrived=2)
    )
    assert sessions(made.take(3.0, 9)) == ["y"]
    assert sessions(made.take(3.0, 9)) == ["x", "z"]


def test_a_session_that_has_gone_is_forgotten():
    made = batcher(request("x"), request("y"), request("x", layout="b"))
    made.remove("x")
    assert len(made) == 1
    assert sessions(made.take(0.0, 9)) == ["y"]
    assert made.take(9.0, 9) is None


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.floats(0, 1)), max_size=20),
    st.integers(1, 6),
    st.integers(1, 30),
)
def test_every_request_is_answered_once_and_within_the_wait(arrivals, min_rows, connections):
    made, now, answered = Batcher(min_rows, 0.5), 0.0, []
    for number, (layout, rows, gap) in enumerate(arrivals):
        now += gap
        while (due := made.deadline()) is not None and due <= now:
            answered += sessions(made.take(due, connections))
        made.add(request(str(number), rows, layout, now))
        while (batch := made.take(now, connections)) is not None:
            assert len({part.layout for part in batch.requests}) == 1
            answered += sessions(batch)
    while (due := made.deadline()) is not None:
        answered += sessions(made.take(due, connections))
    assert sorted(answered, key=int) == [str(number) for number in range(len(arrivals))]
