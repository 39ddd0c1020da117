"""What is read of an observation, as flags and as limits."""

import pytest
import tyro
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.encoders.observation_config import ObservationConfig


def test_flags_are_parsed():
    args = ["--state-keys", "--image-keys", "front", "wrist", "--image-encoder", "impala-small"]
    config = tyro.cli(ObservationConfig, args=args)
    assert (config.state_keys, config.image_keys, config.image_encoder) == ((), ("front", "wrist"), "impala-small")
    assert tyro.cli(ObservationConfig, args=["--image-keys"]).image_keys == ()
    assert tyro.cli(ObservationConfig, args=[]) == ObservationConfig()


def test_image_shapes_are_no_flag(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(ObservationConfig, args=["--help"])
    assert "image-shapes" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "config",
    [
        ObservationConfig(),
        ObservationConfig(state_keys=()),
        ObservationConfig(image_keys=()),
        ObservationConfig(obs_dim=0, state_keys=(), image_keys=("a",), image_shapes={"a": (36, 40, 3)}),
        ObservationConfig(image_encoder="impala-small", image_keys=("a",), image_shapes={"a": (20, 20, 1)}),
    ],
)
def test_what_works_is_taken(config):
    config.check()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"obs_dim": 0}, r"--policy\.obs-dim 0: must be at least 1\."),
        ({"obs_dim": -1, "image_keys": ("a",)}, r"--policy\.obs-dim -1: must be at least 0\."),
        ({"state_keys": (), "image_keys": ()}, r"--policy\.image-keys: name at least one state or image"),
        (
            {"image_shapes": {"cam": (84, 35, 3)}},
            r"images\.cam \[84, 35, 3\]: --policy\.image-encoder nature needs 36x36 or more",
        ),
        ({"image_shapes": {"cam": (84, 84, 0)}}, r"images\.cam \[84, 84, 0\]"),
    ],
)
def test_what_cannot_work_is_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        ObservationConfig(**change).check()
