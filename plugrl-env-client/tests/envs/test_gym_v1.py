"""gym-v1: any registered id, with arguments."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_v1 import GymConfig, make_gym


def test_arguments_reach_the_env():
    env = make_gym(GymConfig(id="Pendulum-v1", kwargs=("g=3.7", "max_episode_steps=7")), 1)
    assert env.max_episode_steps == 7
    env.close()


def test_wrappers_and_chosen_entries_reach_the_env():
    config = GymConfig(
        id="CartPole-v1",
        kwargs=("render_mode=rgb_array",),
        wrappers=("AddRenderObservation(render_only=False)",),
        image_keys=("pixels",),
        state_keys=(),
    )
    pytest.importorskip("pygame")
    env = make_gym(config, 1)
    observation = env.reset(0)
    assert observation.states == {}
    assert observation.images["pixels"].shape == (1, 400, 600, 3)
    env.close()


def test_a_module_in_the_id_is_imported(tmp_path, monkeypatch):
    (tmp_path / "late_env.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Late-v0', entry_point='gymnasium.envs.classic_control.pendulum:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = make_gym(GymConfig(id="late_env:Late-v0"), 2)
    assert env.num_envs == 2
    assert env.reset(0).states["obs"].dtype == np.float64
    env.close()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("Pendulum-v9", (), "cannot make Pendulum-v9"),
        ("Nothing-v0", (), "cannot make Nothing-v0"),
        ("no_such_module:X-v0", (), "cannot make no_such_module:X-v0"),
        ("Pendulum-v1", ("weight=3",), "cannot make Pendulum-v1.*weight"),
        ("Pendulum-v1", ("g",), "--env.kwargs g: expected KEY=VALUE"),
        ("FrozenLake-v1", ("map_name=9x9",), "cannot make FrozenLake-v1: KeyError '9x9'"),
    ],
)
def test_a_mistake_is_refused_by_name(env_id, kwargs, says):
    with pytest.raises(EnvError, match=says):
        make_gym(GymConfig(id=env_id, kwargs=kwargs), 1)
