"""The flags of every Gymnasium family."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.envs.base_env import BaseEnvConfig, EnvError
from plugrl_env_client.envs.gym_families.atari_v1 import AtariConfig
from plugrl_env_client.envs.gym_families.classic_v1 import ClassicConfig
from plugrl_env_client.envs.gym_families.mujoco_v1 import MujocoConfig
from plugrl_env_client.envs.gym_families.pusht_v1 import PushtConfig
from plugrl_env_client.envs.gym_families.robotics_v1 import RoboticsConfig
from plugrl_env_client.envs.gym_flags import GymFlags, parse_kwargs
from plugrl_env_client.envs.gym_v1 import GymConfig


@pytest.mark.parametrize("config", [GymConfig, ClassicConfig, MujocoConfig, AtariConfig, PushtConfig, RoboticsConfig])
def test_every_gymnasium_family_has_them(config):
    flags = {field.name for field in dataclasses.fields(config)}
    assert flags >= {field.name for field in dataclasses.fields(GymFlags)}


def test_they_come_besides_those_that_every_family_has():
    names = {field.name for field in dataclasses.fields(GymFlags)}
    names -= {field.name for field in dataclasses.fields(BaseEnvConfig)}
    assert names == {"vectorization", "kwargs", "wrappers", "state_keys", "image_keys", "success_keys"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("0.5", 0.5), ("True", True), ("None", None), ("[1, 2]", [1, 2]), ("'3'", "3"), ("human", "human")],
)
def test_values_are_literals_or_text(text, value):
    assert parse_kwargs((f"key={text}",)) == {"key": value}


@given(st.text())
def test_a_value_is_never_executed(text):
    assert "key" in parse_kwargs((f"key={text}",))


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (("g",), "--env.kwargs g: expected KEY=VALUE"),
        (("=3",), "--env.kwargs =3: expected KEY=VALUE"),
        (("g=1", "g=2"), "g is given twice"),
    ],
)
def test_a_mistake_is_refused_by_name(pairs, says):
    with pytest.raises(EnvError, match=says):
        parse_kwargs(pairs)
