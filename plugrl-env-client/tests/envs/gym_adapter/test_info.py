"""What of an env's info is sent, field lesson 18."""

import logging

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.info import InfoReader


def test_nothing_is_sent_unless_named():
    assert InfoReader().read([{"x": 1.0}, {"x": 2.0}], any_done=True) == {}


def test_named_entries_are_stacked():
    found = InfoReader(["x", "pose"]).read(
        [{"x": 1, "pose": np.zeros(3)}, {"x": 2, "pose": np.ones(3), "y": 5}], any_done=False
    )
    assert found["x"].tolist() == [1, 2]
    assert found["pose"].tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("key", ["success", "episode"])
def test_a_name_that_means_something_else_on_the_wire_is_refused(key):
    with pytest.raises(EnvError, match=rf"^--env\.info-keys {key}: {key} is .* expected another entry"):
        InfoReader(["x", key])


def test_a_length_that_equals_the_number_of_envs_is_no_batch():
    found = InfoReader(["legs"]).read([{"legs": [1, 2]}, {"legs": [3, 4]}], any_done=False)
    assert found["legs"].tolist() == [[1, 2], [3, 4]]


def test_an_entry_that_an_env_leaves_out_is_zero():
    found = InfoReader(["x", "name"]).read([{}, {"x": 2.5, "name": "pick"}], any_done=False)
    assert found["x"].tolist() == [0.0, 2.5]
    assert found["name"].tolist() == ["", "pick"]


@pytest.mark.parametrize(
    "values",
    [
        (object(), object()),
        ({"a": 1}, {"a": 2}),
        (None, None),
        (np.zeros(2), np.zeros(3)),
        ([1, [2, 3]], [1, [2, 3]]),
        (1.0, "text"),
        (1j, 2j),
        (np.datetime64("2020"), np.datetime64("2021")),
    ],
)
def test_what_cannot_be_sent_is_dropped_with_one_warning(values, caplog):
    reader = InfoReader(["x"])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert reader.read([{"x": value} for value in values], any_done=False) == {}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["info entry 'x' is not sent"]


@pytest.mark.parametrize("key", ["success", "is_success"])
def test_success_is_read_when_an_episode_ended(key):
    infos = [{key: True}, {key: np.False_}, {}]
    assert InfoReader().read(infos, any_done=True)["success"].tolist() == [True, False, False]
    assert InfoReader().read(infos, any_done=False) == {}


def test_an_env_that_does_not_speak_of_success_has_none():
    assert "success" not in InfoReader().read([{}, {}], any_done=True)


def test_other_keys_may_say_it_and_the_first_that_is_there_counts():
    reader = InfoReader(success_keys=("goal", "is_success"))
    assert reader.read([{"is_success": True, "success": False}], any_done=True)["success"].tolist() == [True]
    assert reader.read([{"is_success": True, "goal": 0}], any_done=True)["success"].tolist() == [False]
    assert InfoReader(success_keys=()).read([{"success": True}], any_done=True) == {}
