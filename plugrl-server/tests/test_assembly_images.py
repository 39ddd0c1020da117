"""Sizing a policy by the images that the first client sends."""

import numpy as np
import pytest
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration
from plugrl_server import assembly
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.assembly import CannotServe, Selection
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig


def gaussian(**changes):
    config = GaussianPolicyConfig(device="cpu", **changes)
    return Selection("gaussian-policy", "default", config, "ppo", "default", PPOConfig())


def declared():
    return Declaration(BoxSpace((2,), np.dtype("f4"), np.full(2, -1, "f4"), np.full(2, 1, "f4")), env="Eyes-v1")


def observed(images, side=40):
    sent = {name: np.zeros((1, side, side, 3), np.uint8) for name in images}
    return Observation(images=sent, states={"state": np.zeros((1, 3))}, text=[""])


def test_images_are_filled_with_their_shapes():
    both = assembly.with_declaration(gaussian(), declared(), observed(("wrist", "front"))).policy_config
    assert (both.obs_dim, both.image_keys) == (3, ("front", "wrist"))
    assert both.image_shapes == {"front": (40, 40, 3), "wrist": (40, 40, 3)}
    one = assembly.with_declaration(gaussian(image_keys=("wrist",)), declared(), observed(("wrist", "front")))
    assert one.policy_config.image_shapes == {"wrist": (40, 40, 3)}
    assert assembly.with_declaration(one, declared(), observed(("wrist", "front"))) == one


def test_images_alone_are_enough():
    pixels = Observation(images={"pixels": np.zeros((1, 40, 40, 3), np.uint8)}, states={}, text=[""])
    config = assembly.with_declaration(gaussian(), declared(), pixels).policy_config
    assert (config.obs_dim, config.state_keys, config.image_keys) == (0, (), ("pixels",))
    chosen = assembly.with_declaration(gaussian(state_keys=()), declared(), observed(("pixels",))).policy_config
    assert (chosen.obs_dim, chosen.state_keys) == (0, ())
    policy = assembly.build(assembly.with_declaration(gaussian(), declared(), pixels), seed=0).policy
    assert policy.get_action_and_runtime_state(policy.fake_obs(2))[0].shape == (2, 1, 2)


def test_named_images_wait_for_the_first_observation():
    selection = gaussian(obs_dim=3, action_dim=2, image_keys=("cam",))
    assert assembly.missing(selection) == ("image_shapes",)
    assert assembly.missing(assembly.with_declaration(selection, None, observed(("cam",)))) == ()


@pytest.mark.parametrize(
    ("selection", "observation", "problem"),
    [
        (
            gaussian(image_keys=("top",)),
            observed(("front", "wrist")),
            "images lack top (--policy.image-keys); sent: front, wrist",
        ),
        (
            gaussian(image_keys=("front",), image_shapes={"front": (84, 84, 3)}),
            observed(("front",)),
            "images.front [40, 40, 3], this run has [84, 84, 3]",
        ),
        (
            gaussian(),
            observed(("front",), side=20),
            "images.front [20, 20, 3]: --policy.image-encoder nature needs 36x36 or more",
        ),
    ],
)
def test_images_that_do_not_fit_are_named(selection, observation, problem):
    with pytest.raises(CannotServe) as error:
        assembly.with_declaration(selection, declared(), observation)
    assert str(error.value) == problem
    assert len(f"plugrl-server-reject: {problem}") <= 123  # longer reasons are cut
