"""Loading from a folder (with a fake of lerobot)."""

import os

import numpy as np
import pytest
import torch
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.lerobot.pretrained import as_tensor, load_pretrained

CPU = torch.device("cpu")


def test_policy_and_processors_come_from_the_folder_and_nothing_is_fetched(fake_lerobot):
    pretrained = load_pretrained(fake_lerobot(images=["top"], environment=True), CPU)
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
    assert pretrained.config.pretrained_backbone_weights is None
    assert pretrained.config.load_vlm_weights is False
    assert pretrained.config.vlm_model_name == "on-the-hub"
    assert fake_lerobot.overrides == [{"device_processor": {"device": "cpu"}}]
    assert pretrained.config.device == "cpu"
    assert pretrained.action_dim == 2
    assert list(pretrained.states().items()) == [("observation.state", 3), ("observation.environment_state", 2)]
    assert pretrained.images() == {"observation.images.top": (8, 8, 3)}
    assert pretrained.postprocess(torch.ones(1)).item() == 11


def test_a_language_model_can_be_named_and_is_asked_for_where_it_is_missing(fake_lerobot, tmp_path):
    pretrained = load_pretrained(fake_lerobot(kind="smolvla"), CPU, backbone=tmp_path)
    assert pretrained.config.vlm_model_name == str(tmp_path.resolve())
    assert fake_lerobot.overrides[-1]["tokenizer_processor"] == {"tokenizer_name": str(tmp_path.resolve())}
    with pytest.raises(ConfigError, match=r"language model nowhere are not on this machine.*--policy\.backbone-path"):
        load_pretrained(fake_lerobot(kind="smolvla", vlm_model_name="nowhere"), CPU)


def test_cameras_that_lerobot_fills_itself_are_not_read(fake_lerobot):
    pretrained = load_pretrained(fake_lerobot(images=["top", "empty_camera_0"]), CPU)
    assert list(pretrained.images()) == ["observation.images.top"]


def test_what_is_no_saved_policy_is_refused_with_what_is_missing(fake_lerobot, tmp_path):
    with pytest.raises(ConfigError, match=r"--policy\.policy-path FOLDER is missing"):
        load_pretrained(None, CPU)
    with pytest.raises(ConfigError, match=r"no config\.json, model\.safetensors, policy_preprocessor\.json, policy_po"):
        load_pretrained(tmp_path / "nowhere", CPU)
    old = fake_lerobot()
    (old / "policy_preprocessor.json").unlink()
    with pytest.raises(ConfigError, match=r"no policy_preprocessor\.json there; .*migrate_policy_normalization"):
        load_pretrained(old, CPU)


def test_a_policy_of_another_type_is_refused(fake_lerobot):
    with pytest.raises(ConfigError, match="is a policy of type act, expected diffusion"):
        load_pretrained(fake_lerobot(), CPU, type_name="diffusion")


def test_states_are_floats_and_images_parts_of_one_channels_first():
    assert as_tensor(np.array([[1.0, 2.0]]), CPU).tolist() == [[1, 2]]
    image = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
    image.flags.writeable = False
    tensor = as_tensor(image, CPU)
    assert (tensor.shape, tensor.dtype) == ((1, 3, 2, 4), torch.float32)
    assert tensor[0, 2, 1, 3] == pytest.approx(23 / 255)
    assert torch.equal(as_tensor(torch.from_numpy(image.copy()), CPU), tensor)
