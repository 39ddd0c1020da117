"""Wrappers named on the command line."""

import sys

import gymnasium
import pytest
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from hypothesis import given
from hypothesis import strategies as st
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_adapter.wrappers import parse_wrappers


def wrap(*texts, env_id="CartPole-v1"):
    env = gymnasium.make(env_id, disable_env_checker=True)
    for wrapping in parse_wrappers(texts):
        env = wrapping.wrap(env)
    return env


def test_gymnasiums_own_go_by_their_name_the_first_is_innermost():
    env = wrap("FrameStackObservation(stack_size=3)", "FlattenObservation")
    assert isinstance(env, FlattenObservation)
    assert isinstance(env.env, FrameStackObservation)
    assert env.observation_space.shape == (12,)


def test_arguments_may_be_given_by_position():
    assert wrap("FrameStackObservation(2)").observation_space.shape == (2, 4)
    assert wrap("FlattenObservation()").observation_space.shape == (4,)


def test_others_go_by_module_and_name(tmp_path, monkeypatch):
    (tmp_path / "late_wrappers.py").write_text(
        "import gymnasium\n\n"
        "class Scale(gymnasium.RewardWrapper):\n"
        "    def __init__(self, env, by, *, note=None):\n"
        "        super().__init__(env)\n"
        "        self.by, self.note = by, note\n\n"
        "    def reward(self, reward):\n"
        "        return self.by * reward\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    env = wrap("late_wrappers:Scale(0.5, note='a (b)')")
    env.reset(seed=0)
    assert env.step(0)[1] == 0.5
    assert env.note == "a (b)"


def test_others_are_found_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "wrappers_here.py").write_text("from gymnasium.wrappers import FlattenObservation as Flat\n")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", ".")])
    monkeypatch.chdir(tmp_path)
    assert isinstance(wrap("wrappers_here:Flat"), FlattenObservation)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FrameStack", r"gymnasium.wrappers has no FrameStack; did you mean FrameStackObservation\?"),
        ("qqqqqq", r"gymnasium.wrappers has no qqqqqq \(wrappers from elsewhere are named module:Class\)"),
        ("math:Nothing", "math has no Nothing$"),
        ("math:pi", "math:pi is no wrapper"),
        ("builtins:str", "returned a str, expected an env"),
        ("no_such_module:W", "no_such_module"),
        ("FrameStackObservation(size=3)", "size"),
        ("FrameStackObservation(stack_size=-1)", "-1"),
        ("FrameStackObservation(stack_size=open('x'))", "arguments must be Python literals"),
        ("FrameStackObservation(**{'stack_size': 3})", "arguments must be Python literals"),
        ("FrameStackObservation(3", "arguments must be Python literals"),
        ("FrameStackObservation(3)(4)", "arguments must be Python literals"),
        ("FrameStackObservation(3) + 1", "arguments must be Python literals"),
        ("no name", "expected Name"),
        ("", "expected Name"),
    ],
)
def test_a_mistake_is_refused_by_name(text, says):
    with pytest.raises(EnvError, match=says):
        wrap(text)


@given(st.text())
def test_nothing_of_the_text_is_executed(text):
    try:
        parsed = parse_wrappers([f"Name({text})"])
    except EnvError:
        return
    assert parsed[0].name == "Name"
