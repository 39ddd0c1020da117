"""What is refused before the openpi server is asked anything."""

import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.openpi.openpi_policy_config import OpenPIPolicyConfig
from plugrl_server.record.config_json import config_from_json, config_to_json


def test_the_defaults_and_the_maps_of_openpi_s_examples_pass():
    OpenPIPolicyConfig().check()
    droid = ("observation/exterior_image_1_left=image0", "observation/joint_position=qpos", "prompt2=x")
    OpenPIPolicyConfig(key_map=droid).check()
    OpenPIPolicyConfig(key_map=("images.cam_high=top", "images.cam_low=low", "state=arm+gripper")).check()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"key_map": ("state",)}, "--policy.key-map state: expected"),
        ({"key_map": ("images=a", "images.top=b")}, r"images and images\.top cannot both be"),
        ({"openpi_port": 0}, "--policy.openpi-port 0"),
        ({"openpi_host": "http://robot"}, "--policy.openpi-host http://robot: expected a host name"),
        ({"action_horizon": 0}, "--policy.action-horizon 0"),
        ({"connect_timeout": 0.0}, "--policy.connect-timeout"),
        ({"answer_timeout": -1.0}, "--policy.answer-timeout"),
    ],
)
def test_what_cannot_work_is_refused_with_the_flag(change, words):
    with pytest.raises(ConfigError, match=words):
        OpenPIPolicyConfig(**change).check()


def test_the_key_is_never_written_down():
    written = config_to_json(OpenPIPolicyConfig(openpi_api_key="secret"))
    assert "secret" not in str(written)
    assert config_from_json(OpenPIPolicyConfig(), written).openpi_api_key is None
