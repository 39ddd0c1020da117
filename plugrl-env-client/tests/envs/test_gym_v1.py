"""gym-v1: any registered id, with arguments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_v1 import GymConfig, make_gym, parse_kwargs


def test_arguments_reach_the_env():
    env = make_gym(GymConfig(id="Pendulum-v1", kwargs=("g=3.7", "max_episode_steps=7")), 1)
    assert env.max_episode_steps == 7
    env.close()


def test_a_module_in_the_id_is_imported(tmp_path, monkeypatch):
    (tmp_path / "late_env.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Late-v0', entry_point='gymnasium.envs.classic_control.pendulum:PendulumEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = make_gym(GymConfig(id="late_env:Late-v0"), 2)
    assert env.num_envs == 2
    env.close()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("Pendulum-v9", (), "cannot make Pendulum-v9"),
        ("Nothing-v0", (), "cannot make Nothing-v0"),
        ("no_such_module:X-v0", (), "cannot make no_such_module:X-v0"),
        ("Pendulum-v1", ("weight=3",), "cannot make Pendulum-v1.*weight"),
        ("Pendulum-v1", ("g",), "--env.kwargs g: expected KEY=VALUE"),
        ("Pendulum-v1", ("=3",), "--env.kwargs =3: expected KEY=VALUE"),
        ("Pendulum-v1", ("g=1", "g=2"), "g is given twice"),
    ],
)
def test_a_mistake_is_refused_by_name(env_id, kwargs, says):
    with pytest.raises(EnvError, match=says):
        make_gym(GymConfig(id=env_id, kwargs=kwargs), 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0.5", 0.5), ("True", True), ("None", None), ("[1, 2]", [1, 2]), ("'3'", "3"), ("human", "human")],
)
def test_values_are_literals_or_text(text, value):
    assert parse_kwargs((f"key={text}",)) == {"key": value}


@given(st.text())
def test_a_value_is_never_executed(text):
    assert "key" in parse_kwargs((f"key={text}",))
