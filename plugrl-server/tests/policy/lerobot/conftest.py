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
    """Its action at step i of a chunk is the first two numbers of the robot's state, plus i and what it draws."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.resets, self.batches = 0, []
        self._queue = deque()
        if config.type == "diffusion":
            self.diffusion = FakeDiffusion(config)
        if config.type == "smolvla":
            self.model = FakeFlow(config)

    def prepare_images(self, batch):
        images = [batch[name] for name in self.config.image_features if name in batch]
        return images, [torch.ones(len(image), dtype=torch.bool) for image in images]

    def prepare_state(self, batch):
        return nn.functional.pad(batch["observation.state"], (0, 1))

    def reset(self):
        self.resets += 1
        self._queue.clear()

    def select_action(self, batch):
        if not self._queue:
            self.batches.append(batch)
            state = batch["observation.state"][:, :2]
            self._queue.extend(state + i + self.config.draw(state) for i in range(self.config.n_action_steps))
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


class FakeBackbone(nn.Module):
    """Frozen; its cache holds the tokens as they are, its attention mask and its positions."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -1.0, 2.0, 0.5, 3.0]), requires_grad=False)

    def embed_image(self, image):
        return image.mean((1, 2, 3))[:, None, None] * self.weight.repeat(2, 1)

    def forward(self, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, fill_kv_cache):
        assert (past_key_values, inputs_embeds[1], use_cache, fill_kv_cache) == (None, None, True, True)
        return None, {0: {"tokens": inputs_embeds[0], "mask": attention_mask, "positions": position_ids}}


class FakeFlow(nn.Module):
    """Its velocity depends on the observation's tokens, the point and the time."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.vlm_with_expert = FakeBackbone()
        self.state_proj = nn.Linear(4, 5)
        self.action_out_proj = nn.Linear(5, config.max_action_dim)

    def embed_prefix(self, images, img_masks, lang_tokens, lang_masks, state):
        pictures = [self.vlm_with_expert.embed_image(image) for image in images]
        words = lang_tokens[..., None].float().expand(-1, -1, 5)
        tokens = torch.cat([*pictures, words, self.state_proj(state)[:, None]], 1)
        of_state = torch.ones(len(state), 1, dtype=torch.bool)
        valid = torch.cat([of_state.repeat(1, 2 * len(images)), lang_masks, of_state], 1)
        return tokens, valid, torch.zeros_like(valid).index_fill(1, torch.tensor(tokens.shape[1] - 1), True)

    def denoise_step(self, prefix_pad_masks, past_key_values, x_t, timestep):
        assert self.config.use_cache
        read = (past_key_values[0]["tokens"] * prefix_pad_masks[..., None]).sum(1)
        return 0.5 * x_t + timestep[:, None, None] * self.action_out_proj(read)[:, None]


def make_config(kind="act", images=(), environment=False, size=8, **changes):
    inputs = {"observation.environment_state": feature(2)} if environment else {}
    inputs |= {f"observation.images.{name}": feature(3, size, size) for name in images} | {
        "observation.state": feature(3)
    }
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
            "chunk_size": 6,
            "max_action_dim": 3,
            "num_steps": 5,
            "use_cache": False,
            "load_vlm_weights": True,
            "vlm_model_name": "on-the-hub",
            "adapt_to_pi_aloha": False,
            "pretrained_backbone_weights": "to be fetched",
            "draw": lambda state: 0,
            **changes,
        }
    )


@pytest.fixture
def fake_lerobot(monkeypatch, tmp_path):
    """Puts the fake in lerobot's place; returns a function that saves a policy and returns its folder."""
    configs, loaded = {}, []

    def from_pretrained(folder, config, strict):
        assert strict
        if config.vlm_model_name == "nowhere":
            raise OSError("it is not cached")
        loaded.append(FakePolicy(config))
        return loaded[-1]

    def preprocess(batch):
        words = torch.tensor([[len(text), 0] for text in batch.get("task", ())])
        language = {"observation.language.tokens": words, "observation.language.attention_mask": words > 0}
        return {**batch, **(language if "task" in batch else {}), "info": {}}

    def make_processors(config, pretrained_path, preprocessor_overrides):
        save.overrides.append(preprocessor_overrides)
        return preprocess, lambda action: 10 * action + 1

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
    save.overrides = []
    return save


@pytest.fixture
def obs():
    """Two environments with two states and an image."""
    return {
        "images": {"top": np.full((2, 8, 8, 3), 255, np.uint8)},
        "states": {"arm": np.array([[1.0, 2.0], [3.0, 4.0]]), "base": np.array([[5.0], [6.0]])},
        "text": np.array(["push", ""]),
    }
