"""The policy that asks an openpi server: what it sends, and what it makes of the answers."""

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.openpi.openpi_link import OpenPIError
from plugrl_server.policy.openpi.openpi_policy import API_KEY_VARIABLE, OpenPIPolicy
from plugrl_server.policy.openpi.openpi_policy_config import OpenPIPolicyConfig
from plugrl_server.testing import PolicyContract

OBS = {
    "images": {"top": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)},
    "states": {"arm": np.array([[1.0, 2.0], [3.0, 4.0]]), "gripper": np.array([[5.0], [6.0]])},
    "text": np.array(["fold", ""]),
}


@pytest.fixture
def ask(openpi):
    """Makes a stand-in and a policy that asks it."""
    made = []

    def make(infer=None, api_key=None, **changes):
        server = openpi(*([infer] if infer else []), api_key=api_key)
        made.append(OpenPIPolicy(OpenPIPolicyConfig(openpi_port=server.port, **changes)))
        return made[-1], server

    yield make
    for policy in made:
        policy.link.close()


def test_every_environment_is_one_request_under_the_server_s_names(ask):
    policy, server = ask(
        key_map=("observation/image=top", "observation/state=arm+gripper", "images.cam.high=top"), prompt="wait"
    )
    actions, runtime_state = policy.get_action_and_runtime_state(OBS)
    assert (actions.shape, actions.dtype, runtime_state) == ((2, 3, 2), np.float32, None)
    assert actions[1].tolist() == [[0, 1], [2, 3], [4, 5]]
    first, second = server.seen
    assert first.keys() == {"observation/image", "observation/state", "images", "prompt"}
    np.testing.assert_array_equal(first["observation/image"], OBS["images"]["top"][0])
    np.testing.assert_array_equal(second["images"]["cam"]["high"], OBS["images"]["top"][1])
    assert second["observation/state"].tolist() == [3, 4, 6]
    assert (first["prompt"], second["prompt"]) == ("fold", "wait")


def test_without_a_map_our_own_names_are_sent_and_without_text_no_prompt(ask):
    policy, server = ask(prompt_key="task")
    policy.get_action_and_runtime_state(OBS)
    assert server.seen[0].keys() == {"top", "arm", "gripper", "task"}
    assert server.seen[1].keys() == {"top", "arm", "gripper"}


def test_the_horizon_is_the_first_answer_s_and_has_to_stay(ask):
    chunks = [np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((2, 2)), np.zeros((2, 2))]
    policy, _ = ask(lambda observation: {"actions": chunks.pop(0)})
    assert policy.action_horizon == 0
    assert policy.get_action_and_runtime_state(OBS)[0].shape == (2, 3, 2)
    assert policy.action_horizon == 3
    with pytest.raises(OpenPIError, match="a chunk of 2 actions, where 3 are expected"):
        policy.get_action_and_runtime_state(OBS)


def test_a_part_of_the_chunk_can_be_used(ask):
    policy, _ = ask(action_horizon=2)
    assert policy.get_action_and_runtime_state(OBS)[0][0].tolist() == [[0, 1], [2, 3]]


def test_actions_are_held_against_the_declared_space(ask):
    policy, _ = ask()
    policy.adopt_action_space(BoxSpace((7,), np.dtype("f4"), np.full(7, -1, "f4"), np.full(7, 1, "f4")))
    with pytest.raises(OpenPIError, match="its actions have 2 numbers, these environments take 7"):
        policy.get_action_and_runtime_state(OBS)


def test_actions_are_clipped_to_the_declared_space_and_of_its_dtype(ask):
    policy, _ = ask()
    policy.adopt_action_space(BoxSpace((2,), np.dtype("f8"), np.full(2, -1.0), np.full(2, 3.0)))
    actions, _ = policy.get_action_and_runtime_state(OBS)
    assert actions.dtype == np.float64
    assert actions[0].tolist() == [[0, 1], [2, 3], [3, 3]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "expected a map with actions .*, got a map of server_timing"),
        ({"actions": np.zeros(3)}, r"got a map of actions, server_timing, actions \[3\]"),
        ({"actions": [[1.0]]}, "got a map of actions, server_timing"),
        (b"\x93\x01\x02\x03", "got list"),
    ],
)
def test_what_is_no_chunk_is_refused(ask, answer, words):
    policy, _ = ask(lambda observation: answer)
    with pytest.raises(OpenPIError, match=words):
        policy.get_action_and_runtime_state(OBS)


def test_observations_that_lack_a_key_are_told_so(ask):
    policy, _ = ask(key_map=("image=top", "state=leg"))
    assert "lacks leg (for state, --policy.key-map); sent: top, arm, gripper" in policy.check_observation(OBS)
    nothing = {"images": {}, "states": {}, "text": np.array([""])}
    assert policy.check_observation(nothing) == "observation has neither images nor states"


def test_a_warm_up_asks_nothing(ask):
    policy, server = ask()
    assert policy.get_action_and_runtime_state(policy.fake_obs(2))[0].shape == (2, 1, 1)
    assert server.seen == []
    assert policy.action_horizon == 0


def test_the_key_comes_from_the_environment_too(ask, monkeypatch):
    monkeypatch.setenv(API_KEY_VARIABLE, "sesame")
    policy, _ = ask(api_key="sesame")
    assert policy.get_action_and_runtime_state(OBS)[0].shape == (2, 3, 2)


def test_a_server_that_is_not_there_is_a_mistake_of_the_command_line():
    config = OpenPIPolicyConfig(openpi_host="ws://127.0.0.1:1", connect_timeout=0.01)
    with pytest.raises(ConfigError, match=r"no openpi server at ws://127.0.0.1:1: .*\(--policy.openpi-host"):
        OpenPIPolicy(config)


class TestContract(PolicyContract):
    """What every policy keeps to, asking a stand-in whose actions are the sums of what it is told."""

    @pytest.fixture(autouse=True)
    def asked(self, ask):
        self.ask = ask

    def make_policy(self):
        def infer(observation):
            return {"actions": np.outer([1.0, 0.5], observation["observation/state"][:2])}

        policy, self.server = self.ask(infer, key_map=("observation/state=obs",))
        policy.adopt_action_space(self.action_space)
        return policy

    def test_fake_observations_can_be_read(self):
        """Where others read zeros: what the openpi server expects is unknown, so an empty one gets zeros, unasked."""
        policy = self.build()
        for n in (1, self.rows):
            action, _ = policy.get_action_and_runtime_state(policy.fake_obs(n))
            assert action.shape == (n, 1, 2)
        assert self.server.seen == []
