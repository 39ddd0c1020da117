"""robotics-v1, with gymnasium-robotics (extra `robotics`)."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_families import robotics_v1
from plugrl_env_client.envs.gym_families.robotics_v1 import RoboticsConfig, make_robotics
from plugrl_env_client.testing import EnvContract

pytest.importorskip("gymnasium_robotics", reason="needs the extra robotics")

GOALS = {"observation", "achieved_goal", "desired_goal"}


FETCH = "FetchReach-v4"


def test_the_default_is_one_that_runs_with_any_mujoco():
    env = make_robotics(RoboticsConfig(), 1)
    assert env.env_id == "PointMaze_UMaze-v3"
    assert set(env.reset(0).states) == GOALS
    env.close()


def test_fetch_reach_has_its_goals_as_states():
    env = make_robotics(RoboticsConfig(name=FETCH), 2)
    seen = env.reset(0)
    assert {name: state.shape for name, state in seen.states.items()} == {
        "observation": (2, 10),
        "achieved_goal": (2, 3),
        "desired_goal": (2, 3),
    }
    assert (env.max_episode_steps, env.action_space.shape) == (50, (4,))
    assert not np.array_equal(seen.states["desired_goal"][0], seen.states["desired_goal"][1])
    env.close()


def test_a_goal_that_is_reached_at_the_end_is_a_success():
    env = make_robotics(RoboticsConfig(name=FETCH, kwargs=("max_episode_steps=30",), info_keys=("is_success",)), 2)
    states = env.reset(0).states
    for _ in range(30):
        towards = 10 * (states["desired_goal"] - states["achieved_goal"])
        towards[1] *= -1  # env 1 runs away from it
        action = np.concatenate([np.clip(towards, -1, 1), np.zeros((2, 1))], axis=1)
        step = env.step(action.astype(np.float32))
        states = step.observation.states
    assert step.truncated.tolist() == [True, True]
    assert step.infos["success"].tolist() == [True, False]
    assert step.rewards.tolist() == [0.0, -1.0]
    env.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "names"),
    [("HandReach-v3", GOALS), ("AntMaze_UMaze-v5", GOALS), ("AdroitHandDoor-v1", {"obs"})],
)
def test_the_other_kinds_run(name, names):
    env = make_robotics(RoboticsConfig(name=name), 1)
    assert set(env.reset(0).states) == names
    step = env.step(np.zeros((1, *env.action_space.shape), np.float32))
    assert set(step.observation.states) == names
    env.close()


def test_states_can_be_chosen_and_ordered():
    env = make_robotics(RoboticsConfig(name=FETCH, state_keys=("desired_goal", "observation")), 1)
    assert list(env.reset(0).states) == ["desired_goal", "observation"]
    env.close()


def test_an_unknown_or_bygone_name_is_refused_with_advice():
    with pytest.raises(EnvError, match=r"--env.name FetchReach-v1: did you mean FetchReach-v4\?"):
        make_robotics(RoboticsConfig(name="FetchReach-v1"), 1)


def test_a_mujoco_that_is_too_new_is_named(monkeypatch):
    monkeypatch.setattr(robotics_v1, "version", lambda name: "3.12.0")
    with pytest.raises(EnvError, match=r"needs mujoco below 3\.12, this is 3\.12\.0: uv run .*'mujoco<3\.12'"):
        make_robotics(RoboticsConfig(kwargs=("no_such=1",)), 1)
    monkeypatch.setattr(robotics_v1, "version", lambda name: "3.11.0")
    with pytest.raises(EnvError, match=r"no_such.*\}\)$"):
        make_robotics(RoboticsConfig(kwargs=("no_such=1",)), 1)


class TestContract(EnvContract):
    def make_env(self, num_envs):
        return make_robotics(RoboticsConfig(name=FETCH, kwargs=("max_episode_steps=6",)), num_envs)
