"""What the simulators' environments share. Simulations are fakes here."""

import types

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.scenes import (
    drawing_from,
    image_space,
    require_cameras,
    robot_states,
    sentence_space,
    state_space,
    succeeded,
)

shared = np.random.mtrand._rand  # NumPy's global generator, which robosuite draws from


def test_spaces_hold_what_is_seen():
    assert image_space(5).contains(np.full((5, 5, 3), 255, np.uint8))
    assert state_space(2).contains(np.array([1e9, -1e9]))
    assert sentence_space().contains("put the bowl on the plate (left), then 2 more.")
    assert sentence_space().contains("")


@pytest.mark.parametrize(
    ("cameras", "says"),
    [(("left", "rear"), "--env.cameras rear: .*known: left, right"), (("left", "left"), "left: named twice")],
)
def test_wrong_cameras_are_refused(cameras, says):
    require_cameras(("right", "left"), ("left", "right"))
    with pytest.raises(EnvError, match=says):
        require_cameras(cameras, ("left", "right"))


def drawn(seed, sim, draw):
    rng = np.random.default_rng(seed)
    with drawing_from(rng, sim):
        return draw()


def test_the_global_generator_is_ours_inside_and_untouched_outside():
    old = types.SimpleNamespace()
    shared.seed(0)
    expected = shared.uniform(size=4)
    shared.seed(0)
    first = shared.uniform()
    inside = [drawn(seed, old, shared.uniform) for seed in (1, 1, 2)]
    assert inside[0] == inside[1] != inside[2]
    assert [first, *shared.uniform(size=3)] == expected.tolist()


def test_a_generator_that_parts_hold_on_to_is_seeded_in_place():
    own = np.random.default_rng()
    sim = types.SimpleNamespace(rng=own)
    inside = [drawn(seed, sim, own.uniform) for seed in (1, 1, 2)]
    assert inside[0] == inside[1] != inside[2]
    assert sim.rng is own


def test_draws_go_on_from_episode_to_episode():
    rng, sim = np.random.default_rng(0), types.SimpleNamespace()
    episodes = []
    for _ in range(2):
        with drawing_from(rng, sim):
            episodes.append(shared.uniform())
    assert episodes[0] != episodes[1]


def test_states_are_those_of_robomimics_datasets():
    hand = {"robot0_eef_pos": np.zeros(3, np.float32), "robot1_right_gripper_qpos": np.zeros(2)}
    others = {"robot0_joint_pos": np.zeros(7), "robot0_eef_quat_site": np.zeros(4), "cube_pos": np.zeros(3)}
    found = robot_states({**others, **hand, "object-state": np.ones(10)})
    assert list(found) == [*hand, "object"]
    assert all(value.dtype == np.float64 for value in found.values())
    assert list(robot_states(hand)) == list(hand)


@pytest.mark.parametrize(
    ("verdict", "is_one"), [(True, True), (np.False_, False), ({"task": True, "grasp": False}, True)]
)
def test_success_is_the_simulations_own_word(verdict, is_one):
    assert succeeded(types.SimpleNamespace(_check_success=lambda: verdict)) is is_one
