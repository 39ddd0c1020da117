"""What an env returns is looked at once, and what is wrong with it is named."""

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError, Observation, Step
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.envs.returned import FirstLook, fault

FLAGS = np.zeros(2, bool)


def shown(**entries):
    """What two envs show; the entries are put in after the checks of `Observation`."""
    observation = Observation({"eye": np.zeros((2, 4, 4, 3), np.uint8)}, {"at": np.zeros((2, 3))}, ["", ""])
    for name, value in entries.items():
        (observation.images if name == "eye" else observation.states)[name] = value
    return observation


def told(**changes):
    return Step(shown(), np.ones(2), FLAGS, FLAGS, {})._replace(**changes)


@pytest.fixture
def look():
    return FirstLook(DummyEnv(DummyConfig(), 2))


@pytest.mark.parametrize(
    ("observation", "says"),
    [
        ({"at": np.zeros((2, 3))}, "observation: expected an Observation, got map"),
        (shown(at=[[0.0], [0.0]]), "observation.states.at: expected float[2,d], got list"),
        (shown(at=np.zeros(2)), "observation.states.at: expected float[2,d], got float[2]"),
        (shown(at=np.zeros((3, 1))), "observation.states.at: expected float[2,d], got float[3,1]"),
        (shown(at=np.zeros((2, 1), object)), "observation.states.at: expected float[2,d], got object[2,1]"),
        (shown(eye=np.zeros((2, 4, 4, 3))), "observation.images.eye: expected uint8[2,h,w,c], got float64[2,4,4,3]"),
        (shown(eye=np.zeros((2, 4, 4), np.uint8)), "observation.images.eye: expected uint8[2,h,w,c], got uint8[2,4,4]"),
    ],
)
def test_an_entry_that_cannot_be_sent_is_named(look, observation, says):
    assert fault(observation) == says
    with pytest.raises(EnvError) as raised:
        look.shown("reset", observation)
    assert str(raised.value) == f"dummy-v1: reset() returned {says}"


def test_what_can_be_sent_has_no_fault(look):
    assert fault(shown()) is None
    look.shown("reset", shown())
    look.stepped(told())


@pytest.mark.parametrize("call", ["step", "reset_indices"])
def test_every_call_is_looked_at(look, call):
    look.shown("reset", shown())
    one = shown().take([0])
    with pytest.raises(EnvError) as raised:
        look.stepped(told(observation=one)) if call == "step" else look.shown(call, one)
    assert str(raised.value) == f"dummy-v1: {call}() returned observation: expected 2 rows, got 1"


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ((shown(), 1.0, False, {}), "a tuple, expected a Step"),
        (told(rewards=[1.0, 1.0]), "rewards: expected float[2], got list"),
        (told(rewards=np.ones((2, 1))), "rewards: expected float[2], got float[2,1]"),
        (told(terminated=False), "terminated: expected bool[2], got bool"),
        (told(truncated=np.zeros(2)), "truncated: expected bool[2], got float[2]"),
        (told(infos=None), "infos: expected a map of arrays, got nil"),
        (told(infos={"k": [1, 1]}), "infos['k']: expected an array of 2 rows, got list"),
        (told(infos={"k": np.zeros(3)}), "infos['k']: expected an array of 2 rows, got float[3]"),
        (told(infos={"k": np.zeros(())}), "infos['k']: expected an array of 2 rows, got float[]"),
        (told(infos={"success": np.zeros(2)}), "infos['success']: expected bool[2], got float[2]"),
    ],
)
def test_a_step_that_is_none_is_named(look, step, says):
    with pytest.raises(EnvError) as raised:
        look.stepped(step)
    assert str(raised.value) == f"dummy-v1: step() returned {says}"


def test_an_info_is_looked_at_when_it_first_appears(look):
    for _ in range(3):
        look.stepped(told(infos={"speed": np.zeros(2)}))
    with pytest.raises(EnvError, match=r"infos\['success'\]: expected an array of 2 rows, got list"):
        look.stepped(told(infos={"success": [True, True]}))
