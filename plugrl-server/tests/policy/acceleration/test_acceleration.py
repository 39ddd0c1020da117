"""Compiled and narrower forward passes give the plain ones' losses, and leave acting alone."""

import copy
import shutil

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.dppo.dppo import DPPO
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.algorithm.fpo.fpo import FPO
from plugrl_server.algorithm.fpo.fpo_config import FPOConfig
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.algorithm.sac.sac_learner import SACLearner
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.acceleration import acceleration
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.dppo.dppo_policy import DPPOPolicy
from plugrl_server.policy.dppo.dppo_policy_config import DPPOPolicyConfig
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig

# Torch looks for a gradient of inputs that are no leaves, and hides the warning itself where it is not made an error.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

STATES = {"obs_dim": 3, "action_dim": 2, "action_horizon": 1, "device": "cpu"}
IMAGES = {"image_keys": ("cam",), "image_shapes": {"cam": (20, 20, 1)}, "image_encoder": "impala-small"}
STATES_ALONE = {"image_keys": (), "image_shapes": {}}
CHAIN = {"num_steps": 3, "actor_hidden_sizes": (16, 16, 16), "critic_hidden_sizes": (16, 16, 16)}
SIZES = {"buffer_size": 32, "batch_size": 16, "update_epochs": 2}
KINDS = {
    "ppo": (GaussianPolicy, GaussianPolicyConfig, {}, lambda policy: PPO(PPOConfig(**SIZES), policy)),
    "sac": (SACPolicy, SACPolicyConfig, {"hidden_sizes": (16, 16)}, lambda policy: SACLearner(LITTLE_SAC, policy)),
    "fpo": (FPOPolicy, FPOPolicyConfig, CHAIN, lambda policy: FPO(FPOConfig(**SIZES), policy)),
    "dppo": (DPPOPolicy, DPPOPolicyConfig, CHAIN, lambda policy: DPPO(DPPOConfig(**SIZES), policy)),
}
LITTLE_SAC = SACConfig(batch_size=16, buffer_size=32, policy_frequency=1)
ALL = sorted(KINDS)


def made(kind, **changes):
    """An algorithm with 32 frames in its buffer: the same ones, and the same weights, whatever the flags."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    policy_class, config_class, sizes, make = KINDS[kind]
    algorithm = make(policy_class(config_class(**{**STATES, **IMAGES, **sizes, **changes})))
    policy, rng = algorithm.policy, np.random.default_rng(0)
    for _ in range(4):
        numbers = rng.standard_normal((8, 4, 1, 2)).astype(np.float32)
        obs = {
            "images": {"cam": rng.integers(256, size=(8, 20, 20, 1), dtype=np.uint8)},
            "states": {"s": rng.standard_normal((8, 3))},
            "text": np.full(8, ""),
        }
        executed = np.ones(8, int)
        frame = {
            "obs": policy.observe(obs),
            "next_obs": policy.observe(obs),
            "reward": rng.standard_normal(8).astype(np.float32),
            "terminated": np.ones(8, bool),
            "truncated": np.zeros(8, bool),
            "nodes": [(-1, "")] * 8,
        }
        if kind == "sac":
            algorithm.add(action=np.tanh(numbers[:, 0, 0]), **frame)
        else:
            train_states = {
                "ppo": numbers[:, 0, 0],
                "fpo": {"chunk": numbers[:, 0], "executed": executed},
                "dppo": {"chain": numbers, "executed": executed},
            }
            algorithm.rollout.add(train_state=train_states[kind], **frame)
    return algorithm


def learned(kind, **changes):
    """Metrics and policy after one learn step."""
    algorithm = made(kind, **changes)
    if kind == "sac":
        algorithm.update(3)
        return algorithm.metrics(), algorithm.policy
    return algorithm.learn()[1], algorithm.policy


def compare(first, second, tolerance):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value == pytest.approx(second[name], abs=tolerance), name


@pytest.fixture
def captured(monkeypatch):
    """How many functions torch has captured; no code is generated for them, which takes a minute."""
    monkeypatch.setattr(acceleration, "BACKEND", "eager")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield lambda: sum(torch._dynamo.utils.counters["frames"].values())
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", ALL)
def test_compiled_networks_learn_what_plain_ones_learn(kind, captured):
    reads = IMAGES if kind in ("ppo", "sac") else STATES_ALONE  # these two have encoders that both networks share
    compiled, policy = learned(kind, **reads, compile=True)
    assert captured() > 0
    compare(compiled, learned(kind, **reads)[0], 1e-5)
    assert not [name for name in policy.state_dict() if "_orig_mod" in name]


def test_a_copy_of_a_compiled_policy_runs_its_own_weights(captured):
    policy = made("ppo", compile=True).policy
    twin = copy.deepcopy(policy)
    with torch.no_grad():
        twin.critic[-1].bias.fill_(7.0)
    features = policy.features(policy.observe(policy.fake_obs(2)))
    difference = twin.outputs_and_value(features)[1] - policy.outputs_and_value(features)[1]
    assert (difference.abs() > 1).all()


@pytest.mark.parametrize("kind", ALL)
def test_autocast_runs_in_bfloat16_and_learns_nearly_the_same(kind, monkeypatch):
    dtypes = set()
    for module, name in ((torch.nn.functional, "linear"), (torch.nn.functional, "conv2d"), (torch, "baddbmm")):
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=plain: (out := f(*a), dtypes.add(out.dtype))[0])
    narrow, policy = learned(kind, autocast="bf16")
    assert dtypes == {torch.bfloat16}
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    compare(narrow, learned(kind)[0], 0.05)


@pytest.mark.parametrize("kind", ALL)
def test_acting_stays_as_it_is(kind, captured):
    plain, quick = (made(kind, **changes).policy for changes in ({}, {"autocast": "bf16", "compile": True}))
    quick.load_state_dict(plain.state_dict())
    quick.load_rng_state(plain.rng_state())
    obs = plain.fake_obs(3)
    actions = plain.get_action_and_runtime_state(obs)[0]
    np.testing.assert_array_equal(quick.get_action_and_runtime_state(obs)[0], actions)
    assert captured() == 0


@pytest.mark.parametrize("compiling", [False, True])
def test_ratios_of_flows_are_1_before_the_first_step(compiling, captured):
    algorithm = made("fpo", **STATES_ALONE, autocast="bf16", compile=compiling)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    for batch in algorithm.batches(algorithm.draw(frames)):
        torch.testing.assert_close(algorithm.flow_losses(batch), batch.old_loss, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiling", [False, True])
def test_ratios_of_diffusions_are_1_before_the_first_step(compiling, captured):
    algorithm = made("dppo", **STATES_ALONE, autocast="bf16", compile=compiling)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    old = algorithm._old_log_probs(frames)
    for pair, _ in algorithm._mini_batches(len(frames.value)):
        torch.testing.assert_close(algorithm._log_prob(frames, pair), old[pair], rtol=1e-5, atol=1e-5)


def test_without_a_flag_the_function_itself_runs():
    assert acceleration.accelerated(abs, AccelerationConfig(), torch.device("cpu")) is abs


@pytest.mark.parametrize("kind", ALL)
def test_without_a_compiler_the_flag_is_refused(kind, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match=r"--policy\.compile on cpu: torch needs a C\+\+ compiler"):
        made(kind, compile=True)
