"""lerobot's SmolVLA as a flow (with a fake of lerobot)."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import BoxSpace
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.lerobot_flow_policy import LeRobotFlowPolicy, attention_mask
from plugrl_server.policy.lerobot.lerobot_flow_policy_config import LeRobotFlowPolicyConfig
from plugrl_server.testing import AlgorithmContract, PolicyContract

SPACE = BoxSpace((2,), np.dtype("f4"), np.full(2, -5, "f4"), np.full(2, 5, "f4"))
SHAPES = {"top": (8, 8, 3)}


def policy(folder, **changes):
    known = {"obs_dim": 3, "action_dim": 2, "state_keys": ("arm", "base"), "action_space": SPACE}
    options = {
        "policy_path": folder,
        "device": "cpu",
        "critic_hidden_sizes": (8,),
        "image_shapes": SHAPES,
        "task": "push",
    }
    return LeRobotFlowPolicy(LeRobotFlowPolicyConfig(**{**known, **options, **changes}))


@pytest.fixture
def flow(fake_lerobot):
    return policy(fake_lerobot(kind="smolvla", images=["top"]))


def test_tokens_read_their_own_block_and_earlier_ones_but_no_padding():
    valid = torch.tensor([[True, True, False, True]])
    mask = attention_mask(valid, torch.tensor([[0, 0, 0, 1]]))
    assert mask.int().tolist() == [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1]]]


def test_chains_are_padded_chunks_of_which_the_first_numbers_are_sent_in_lerobot_s_units(flow, obs):
    flow.deterministic = True
    actions, state = flow.get_action_and_runtime_state(obs)
    assert (flow.action_horizon, flow.num_steps) == (4, 5)
    assert (actions.shape, state["chain"].shape) == ((2, 4, 2), (2, 6, 6, 3))
    np.testing.assert_allclose(actions, np.clip(10 * state["chain"][:, -1, :4, :2] + 1, -5, 5), rtol=1e-5)


def test_the_model_sees_images_task_and_padded_state_in_its_own_order(flow, obs):
    condition = flow.condition(flow.features(flow.observe(obs)))
    (cache,) = condition["cache"].values()
    picture = flow.model.vlm_with_expert.weight.tolist()
    states = flow.model.state_proj(torch.tensor([[1.0, 2, 5, 0], [3, 4, 6, 0]]))
    for row in range(2):
        expected = [picture, picture, [4.0] * 5, [0.0] * 5, states[row].tolist()]
        torch.testing.assert_close(cache["tokens"][row], torch.tensor(expected))
    assert condition["valid"].tolist() == [[True, True, True, False, True]] * 2
    assert cache["positions"].tolist() == [[0, 1, 2, 2, 3]] * 2
    assert cache["mask"][0].int().tolist()[-2:] == [[0, 0, 0, 0, 0], [1, 1, 1, 0, 1]]


def test_a_step_goes_against_the_velocity_from_time_1(flow, obs):
    condition, x = flow.condition(flow.features(flow.observe(obs))), torch.randn(2, 6, 3)
    mean, std = flow.denoise_step(condition, x, torch.tensor([0, 4]))
    read = (condition["cache"][0]["tokens"] * condition["valid"][..., None]).sum(1)
    velocity = 0.5 * x + torch.tensor([1.0, 0.2])[:, None, None] * flow.model.action_out_proj(read)[:, None]
    torch.testing.assert_close(mean, x - velocity / 5)
    assert std == 0


def test_the_value_reads_states_and_images_and_teaches_lerobot_s_network_nothing(flow, obs):
    value = flow.value(flow.features(flow.observe(obs)))
    picture = flow.model.vlm_with_expert.weight
    seen = torch.nn.functional.layer_norm(picture, picture.shape).expand(2, -1)
    expected = flow.critic(torch.cat([torch.tensor([[1.0, 2, 5], [3, 4, 6]]), seen], 1)).squeeze(1)
    torch.testing.assert_close(value, expected)
    value.sum().backward()
    assert all(parameter.grad is None for parameter in flow.model.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in flow.critic.parameters())


def test_what_lerobot_froze_is_nobody_s_to_learn(flow):
    parts = [*flow.actor_parameters(), *flow.critic_parameters()]
    others = [name for name, each in flow.named_parameters() if all(each is not part for part in parts)]
    assert others == ["model.vlm_with_expert.weight"]


def test_a_text_of_another_task_is_told(flow, obs):
    assert flow.check_observation(obs) is None
    obs["text"] = np.array(["lift", "push"])
    assert "text 'lift': lerobot-flow-policy does one task, and --policy.task is 'push'" in flow.check_observation(obs)


def test_what_does_not_fit_is_refused_with_both_sides(fake_lerobot):
    for options, change, words in (
        ({"kind": "act"}, {}, "is a policy of type act, expected smolvla"),
        ({"n_obs_steps": 2}, {}, "lerobot-flow-policy takes .* this one reads 2"),
        ({"images": ()}, {}, r"reads observation\.state\."),
        ({"adapt_to_pi_aloha": True}, {}, "adapt_to_pi_aloha"),
        ({}, {"action_horizon": 7}, r"--policy\.action-horizon 7: this policy's horizon is 6"),
        ({}, {"image_shapes": {}}, r"images none, this policy reads .*top"),
    ):
        with pytest.raises(ConfigError, match=words):
            policy(fake_lerobot(**{"kind": "smolvla", "images": ["top"], **options}), **change)


class FlowOfContract:
    """The fake, for an environment with an image."""

    images: ClassVar = {"top": (40, 40, 3)}
    untrained: ClassVar = ("model.vlm_with_expert.weight",)

    @pytest.fixture(autouse=True)
    def folder(self, fake_lerobot):
        self.saved = fake_lerobot(kind="smolvla", images=["top"], size=40)

    def make_policy(self):
        sizes = {"num_steps": 3, "critic_hidden_sizes": (8,), "device": "cpu"}
        return LeRobotFlowPolicy(self.sized(LeRobotFlowPolicyConfig(policy_path=self.saved, **sizes)))


class TestContract(FlowOfContract, PolicyContract):
    """What every policy keeps to."""


class TestFPOContract(FlowOfContract, AlgorithmContract):
    """fpo learns with it."""

    def make_algorithm(self):
        sizes = {"buffer_size": 16, "batch_size": 8, "update_epochs": 1, "save_interval": 2, "global_steps": 10_000}
        return FPO(FPOConfig(**sizes), self.make_policy())
