"""One task of a FAKE Meta-World."""

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.simulators.metaworld_task import ENV_ID, MetaworldTask

MOVE = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


@pytest.fixture(autouse=True)
def _fakes(fake_metaworld):
    pass


def test_it_is_registered():
    env = gymnasium.make(ENV_ID, task="reach-v3")
    assert isinstance(env.unwrapped, MetaworldTask)


def test_observations_are_of_the_space():
    env = MetaworldTask("door-open-v3", cameras=("corner", "topview"), image_size=8)
    observed, info = env.reset(seed=0)
    assert info == {"success": False}
    assert env.observation_space.contains(observed)
    assert observed["text"] == "door open"
    assert env.observation_space.contains(env.step(MOVE)[0])


def test_the_seed_reaches_the_simulations_generator_and_episodes_differ():
    env, other = MetaworldTask("reach-v3"), MetaworldTask("reach-v3")
    goals = [env.reset(seed=seed)[0]["obs"][36:].tolist() for seed in (5, None, 5)]
    assert goals[0] == goals[2] != goals[1]
    assert other.reset()[0]["obs"][36:].tolist() != goals[0]


def test_without_a_seed_two_envs_differ(fake_metaworld):
    for _ in range(2):
        MetaworldTask("reach-v3").reset()
    one, other = (made.seeds for made in fake_metaworld.made)
    assert len(one) == len(other) == 1
    assert one != other


def test_hidden_goals_are_zeros():
    assert MetaworldTask("reach-v3", goal_hidden=True).reset(seed=0)[0]["obs"][36:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("terminates", [False, True])
def test_a_success_in_passing_lasts_to_the_episodes_end(terminates):
    env = MetaworldTask("reach-v3", terminate_on_success=terminates)
    for _ in range(2):
        env.reset()
        told = [env.step(MOVE) for _ in range(5)]
        assert [info["success"] for *_, info in told] == [False, False, True, True, True]
        assert [ended for _, _, ended, _, _ in told] == [False, False, terminates, terminates, terminates]
    assert told[0][1] == pytest.approx(1.0)
    assert told[0][4]["near_object"] == 0.5


def test_corner_cameras_hang_upside_down():
    env = MetaworldTask("reach-v3", cameras=("topview", "corner2"), image_size=4)
    observed, _ = env.reset(seed=0)
    assert observed["topview"][:, 0, 0].tolist() == [0, 20, 40, 60]
    assert observed["corner2"][:, 0, 0].tolist() == [60, 40, 20, 0]
    assert observed["corner2"][0, :, 1].tolist() == [60, 40, 20, 0]


def test_there_is_one_renderer_and_it_shows_the_present(fake_metaworld):
    import mujoco

    env = MetaworldTask("reach-v3", cameras=("topview", "corner2"), image_size=4)
    env.reset(seed=0)
    assert env.step(MOVE)[0]["topview"][0, 0, 2] == 1
    assert len(mujoco.Renderer.made) == 1
    env.close()
    env.close()
    assert mujoco.Renderer.made[0].closed
    assert fake_metaworld.made[-1].closed


def test_without_cameras_nothing_is_rendered():
    import mujoco

    env = MetaworldTask("reach-v3")
    env.reset()
    env.step(MOVE)
    assert mujoco.Renderer.made == []
