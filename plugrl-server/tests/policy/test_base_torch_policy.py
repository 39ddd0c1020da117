"""The base of torch policies: device, own generator, and where its configuration lives."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy import base_policy, base_torch_policy
from plugrl_server.policy.base_torch_policy import BaseTorchPolicy, BaseTorchPolicyConfig, resolve_device


class Layer(BaseTorchPolicy):
    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)

    def get_action_and_runtime_state(self, obs):
        return self.rng.random((1, 1, 1)), None


def test_it_is_a_module_and_a_policy():
    policy = Layer(BaseTorchPolicyConfig())
    assert set(policy.state_dict()) == {"layer.weight", "layer.bias"}
    assert isinstance(policy, base_policy.BasePolicy)
    assert policy.config.device == "auto"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_it_tells_whether_what_learns_is_finite(bad):
    policy = Layer(BaseTorchPolicyConfig())
    policy.register_buffer("statistics", torch.full((1,), bad))
    assert policy.weights_are_finite()
    policy.layer.bias.data[0] = bad
    assert not policy.weights_are_finite()
    policy.layer.bias.requires_grad_(False)
    assert policy.weights_are_finite()


def test_the_configuration_is_torch_free_and_exported_from_both_modules():
    assert base_torch_policy.BaseTorchPolicyConfig is base_policy.BaseTorchPolicyConfig
    program = "import sys, plugrl_server.policy.base_policy; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_lesson_23_auto_is_the_cpu_where_there_is_no_cuda():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected
    assert resolve_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x"])
def test_an_unknown_device_is_refused_with_the_flag(name):
    with pytest.raises(ConfigError, match=rf"--policy\.device {name}: no such torch device"):
        resolve_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_this_machine_lacks_is_refused():
    with pytest.raises(ConfigError, match="torch sees no CUDA device"):
        resolve_device("cuda:0")


def test_a_device_beyond_those_that_are_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [resolve_device(name).index for name in ("cuda", "cuda:0", "cuda:1")] == [None, 0, 1]
    with pytest.raises(ConfigError, match=r"--policy\.device cuda:2: torch sees 2 CUDA device.*, the last is cuda:1"):
        resolve_device("cuda:2")


def test_its_generator_follows_the_global_seed_and_can_be_kept():
    def draw():
        torch.manual_seed(5)
        return Layer(BaseTorchPolicyConfig()).rng.random()

    assert draw() == draw()
    policy = Layer(BaseTorchPolicyConfig())
    state = policy.rng_state()
    first = policy.rng.random(3)
    policy.load_rng_state(state)
    np.testing.assert_array_equal(policy.rng.random(3), first)
