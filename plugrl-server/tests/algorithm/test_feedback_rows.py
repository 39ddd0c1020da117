"""The rows of one feedback message."""

import numpy as np
import torch
from plugrl_server.algorithm.feedback_rows import NO_NODE, Client, FeedbackRows


def rows(m=3):
    return FeedbackRows(
        obs={"states": {"s": np.arange(m * 2.0).reshape(m, 2)}},
        runtime_state={"sample": torch.arange(m)},
        train_state=None,
        terminated=np.arange(m) == 0,
        truncated=np.arange(m) == 1,
        next_obs={"states": {"s": np.arange(m * 2.0).reshape(m, 2) + 1}},
        reward=np.arange(m, dtype=np.float32),
        info=tuple({"row": i} for i in range(m)),
        next_terminated=np.arange(m) == 1,
        next_truncated=np.arange(m) == 2,
        nodes=[(i, "key") for i in range(m)],
    )


def test_a_row_is_the_arguments_of_feedback():
    row = rows().row(1)
    assert row["obs"]["states"]["s"].tolist() == [[2, 3]]
    assert row["runtime_state"]["sample"].shape == (1,)
    assert row["train_state"] is None
    assert (row["reward"], type(row["reward"])) == (1.0, float)
    flags = [row[name] for name in ("terminated", "truncated", "next_terminated", "next_truncated")]
    assert flags == [False, True, True, False]
    assert all(type(flag) is bool for flag in flags)
    assert (row["info"], row["prev_node"]) == ({"row": 1}, (1, "key"))


def test_one_is_the_inverse_of_row():
    again = FeedbackRows.one(**rows().row(2)).row(0)
    expected = rows().row(2)
    assert again.keys() == expected.keys()
    np.testing.assert_equal(again.pop("obs"), expected.pop("obs"))
    np.testing.assert_equal(again.pop("next_obs"), expected.pop("next_obs"))
    assert torch.equal(again.pop("runtime_state")["sample"], expected.pop("runtime_state")["sample"])
    assert again == expected


def test_select_and_tail_take_rows():
    selected = rows().select(1, 2)
    assert (len(selected), selected.nodes, selected.reward.tolist()) == (1, [(1, "key")], [1])
    tail = rows().tail(1)
    assert len(tail) == 2
    assert [info["row"] for info in tail.info] == [1, 2]
    assert len(rows().tail(3)) == 0


def test_rows_keep_whose_they_are():
    client = Client((2, 5, 7))
    known = rows()
    known.client, known.env_indices = client, np.array([2, 5, 7])
    part = known.select(1)
    assert part.client is client
    assert part.env_indices.tolist() == [5, 7]
    assert rows().select(1).env_indices is None


def test_the_first_node():
    assert NO_NODE == (-1, "")
