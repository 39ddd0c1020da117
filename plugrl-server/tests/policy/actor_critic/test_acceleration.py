"""Compiled and narrower forward passes give the plain ones' losses."""

import copy
import shutil

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.actor_critic import acceleration
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig

IMAGES = {"image_keys": ("cam",), "image_shapes": {"cam": (20, 20, 1)}, "image_encoder": "impala-small"}


def learned(**changes):
    """Metrics and weights after one learn step on the same frames, whatever the flags."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = GaussianPolicyConfig(obs_dim=3, action_dim=2, device="cpu", **IMAGES, **changes)
    algorithm = PPO(PPOConfig(buffer_size=40, batch_size=16, update_epochs=2), GaussianPolicy(config))
    rng = np.random.default_rng(0)
    for _ in range(5):
        obs = {
            "images": {"cam": rng.integers(256, size=(8, 20, 20, 1), dtype=np.uint8)},
            "states": {"s": rng.standard_normal((8, 3))},
            "text": np.full(8, ""),
        }
        algorithm.rollout.add(
            obs=algorithm.policy.observe(obs),
            train_state=rng.standard_normal((8, 2)).astype(np.float32),
            next_obs=algorithm.policy.observe(obs),
            reward=rng.standard_normal(8).astype(np.float32),
            terminated=np.ones(8, bool),
            truncated=np.zeros(8, bool),
            nodes=[(-1, "")] * 8,
        )
    metrics = algorithm.learn()[1]
    return metrics, algorithm.policy


def compare(first, second, tolerance):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value == pytest.approx(second[name], abs=tolerance), name


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch cannot compile")
def test_compiled_networks_learn_what_plain_ones_learn(monkeypatch):
    monkeypatch.setattr(
        acceleration, "BACKEND", "eager"
    )  # captured and guarded like any other, but no code is generated, which takes a minute
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, policy = learned(compile=True)
    assert sum(torch._dynamo.utils.counters["frames"].values()) > 0
    plain, _ = learned()
    compare(compiled, plain, 1e-5)
    assert not [name for name in policy.state_dict() if "_orig_mod" in name]
    twin = copy.deepcopy(policy)
    with torch.no_grad():
        twin.critic[-1].bias.fill_(7.0)
    features = policy.features(policy.observe(policy.fake_obs(2)))
    difference = twin.outputs_and_value(features)[1] - policy.outputs_and_value(features)[1]
    assert (difference.abs() > 1).all()
    torch._dynamo.reset()


def test_autocast_runs_in_bfloat16_and_learns_nearly_the_same(monkeypatch):
    dtypes = set()
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda *a: (out := forward(*a), dtypes.add(out.dtype))[0])
    narrow, policy = learned(autocast="bf16")
    assert dtypes == {torch.bfloat16}
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    plain, _ = learned()
    compare(narrow, plain, 0.05)
    outputs, value = policy.outputs_and_value(policy.features(policy.observe(policy.fake_obs(2))))
    assert (outputs.dtype, value.dtype) == (torch.float32, torch.float32)


def test_without_a_compiler_the_flag_is_refused(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match=r"--policy\.compile on cpu: torch needs a C\+\+ compiler"):
        acceleration.compiled(abs, torch.device("cpu"))
