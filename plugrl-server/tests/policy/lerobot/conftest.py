"""A fake of lerobot's interface, as far as the policies here use it. `test_with_lerobot.py` has the real thing."""

import sys
import types
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from plugrl_server.policy.lerobot.pretrained import FILES
from torch import nn


def feature(*shape):
    return SimpleNamespace(shape=shape)


class FakePolicy(nn.Module):
    """Its action at step i of a chunk is the first two numbers of the robot's state, plus i."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.resets, self.batches = 0, []
        self._queue = deque()
        if config.type == "diffusion":
            self.diffusion = FakeDiffusion(config)

    def reset(self):
        self.resets += 1
        self._queue.clear()

    def select_action(self, batch):
        if not self._queue:
            self.batches.append(batch)
            self._queue.extend(batch["observation.state"][:, :2] + i for i in range(self.config.n_action_steps))
        return self._queue.popleft()


class FakeScheduler:
    """A schedule of ten steps."""

    alphas_cumprod = torch.linspace(0.99, 0.05, 10)

    def set_timesteps(self, count):
        self.timesteps = torch.arange(0, 10, 10 // count).flip(0)


class FakeDiffusion(nn.Module):
    """Predicts noise from the chunk and what it is conditioned on."""

    def __init__(self, config):
        super().__init__()
        self.noise_scheduler = FakeScheduler()
        width = sum(f.shape[0] for f in config.input_features.values())
        self.layer = nn.Linear(width, 2)

    def unet(self, x, timestep, global_cond):
        return 0.5 * x + self.layer(global_cond)[:, None]

    def _prepare_global_conditioning(self, batch):
        return torch.cat([value.flatten(1) for value in batch.values()], 1)


def make_config(kind="act", images=(), environment=False, **changes):
    inputs = {"observation.environment_state": feature(2)} if environment else {}
    inputs |= {f"observation.images.{name}": feature(3, 8, 8) for name in images} | {"observation.state": feature(3)}
    return SimpleNamespace(
        **{
            "type": kind,
            "input_features": inputs,
            "robot_state_feature": inputs["observation.state"],
            "env_state_feature": inputs.get("observation.environment_state"),
            "image_features": {name: f for name, f in inputs.items() if "images" in name},
            "action_feature": feature(2),
            "n_obs_steps": 1,
            "n_action_steps": 4,
            "horizon": 6,
            "num_inference_steps": None,
            "num_train_timesteps": 10,
            "clip_sample": True,
            "clip_sample_range": 1.0,
            "prediction_type": "epsilon",
            "pretrained_backbone_weights": "to be fetched",
            **changes,
        }
    )


@pytest.fixture
def fake_lerobot(monkeypatch, tmp_path):
    """Puts the fake in lerobot's place; returns a function that saves a policy and returns its folder."""
    configs, loaded = {}, []

    def from_pretrained(folder, config, strict):
        assert strict
        loaded.append(FakePolicy(config))
        return loaded[-1]

    def make_processors(config, pretrained_path, preprocessor_overrides):
        assert preprocessor_overrides == {"device_processor": {"device": config.device}}
        return lambda batch: {**batch, "info": {}}, lambda action: 10 * action + 1

    modules = {
        "lerobot": {},
        "lerobot.configs": {},
        "lerobot.configs.policies": {"PreTrainedConfig": SimpleNamespace(from_pretrained=lambda f: configs[str(f)])},
        "lerobot.policies": {},
        "lerobot.policies.factory": {
            "get_policy_class": lambda name: SimpleNamespace(from_pretrained=from_pretrained),
            "make_pre_post_processors": make_processors,
        },
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")

    def save(**changes):
        folder = tmp_path / f"policy{len(configs)}"
        folder.mkdir()
        for name in FILES:
            (folder / name).touch()
        configs[str(folder.resolve())] = make_config(**changes)
        return folder

    save.loaded = loaded
    return save


@pytest.fixture
def obs():
    """Two environments with two states and an image."""
    return {
        "images": {"top": np.full((2, 8, 8, 3), 255, np.uint8)},
        "states": {"arm": np.array([[1.0, 2.0], [3.0, 4.0]]), "base": np.array([[5.0], [6.0]])},
        "text": np.array(["push", ""]),
    }
