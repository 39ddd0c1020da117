"""What fine-tuning needs of lerobot (with a fake of it)."""

from types import SimpleNamespace

import pytest
import torch
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.fine_tuning import batch_of, bounds_of, check_actions, check_inputs
from plugrl_server.policy.lerobot.pretrained import load_pretrained

CPU = torch.device("cpu")


def reader(**changes):
    return SimpleNamespace(
        **{"image_keys": ("eye",), "image_shapes": {"eye": (8, 8, 3)}, "obs_dim": 5, "device": CPU, **changes}
    )


@pytest.fixture
def pretrained(fake_lerobot):
    return load_pretrained(fake_lerobot(images=["top"], environment=True), CPU)


def test_states_are_taken_apart_the_robot_s_first_and_images_follow_in_order(pretrained):
    features = {"states": torch.arange(5.0)[None], "images": {"eye": torch.full((1, 8, 8, 3), 51, dtype=torch.uint8)}}
    batch = batch_of(reader(), pretrained, features)
    assert batch["observation.state"].tolist() == [[0, 1, 2]]
    assert batch["observation.environment_state"].tolist() == [[3, 4]]
    assert torch.equal(batch["observation.images.top"], torch.full((1, 3, 8, 8), 0.2))


def test_units_are_what_the_postprocessor_makes_of_0_and_1(pretrained):
    bounds = bounds_of(pretrained, CPU)
    assert (bounds.centre.tolist(), bounds.half_width.tolist()) == ([1, 1], [10, 10])


def test_sizes_that_differ_are_told_with_both_sides(pretrained):
    asked = {"action_dim": 2, "action_horizon": 6}
    check_actions("mine", SimpleNamespace(**asked), pretrained, horizon=6)
    check_inputs(reader(), pretrained)
    for change, words in (
        ({"action_dim": 3}, "action_dim 3, this policy has 2"),
        ({"action_horizon": 7}, r"--policy\.action-horizon 7: this policy's horizon is 6"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_actions("mine", SimpleNamespace(**{**asked, **change}), pretrained, horizon=6)
    for change, words in (
        ({"obs_dim": 4}, "obs_dim 4, this policy reads 5"),
        ({"image_shapes": {"eye": (9, 8, 3)}}, r"\(9, 8, 3\).*, this policy reads .*\(8, 8, 3\)"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_inputs(reader(**change), pretrained)


def test_a_memory_is_refused_in_the_policy_s_name(fake_lerobot):
    remembering = load_pretrained(fake_lerobot(n_obs_steps=2), CPU)
    with pytest.raises(ConfigError, match="mine takes policies that read one observation; this one reads 2"):
        check_actions("mine", SimpleNamespace(action_dim=None, action_horizon=None), remembering, horizon=6)
