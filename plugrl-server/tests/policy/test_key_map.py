"""A foreign policy's names for what the environments send."""

import numpy as np
import pytest
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.key_map import KeyMap

OBS = {
    "images": {"top": np.zeros((2, 4, 4, 3), np.uint8)},
    "states": {"arm": np.array([[1.0, 2.0], [3.0, 4.0]]), "gripper": np.array([[5.0], [6.0]])},
    "text": np.array(["", ""]),
}


def test_images_and_states_are_renamed_and_states_put_side_by_side():
    read = KeyMap.parse(["image=top", "state = gripper + arm", "joint=arm"]).read(OBS)
    assert read.keys() == {"image", "state", "joint"}
    assert read["image"] is OBS["images"]["top"]
    assert read["state"].tolist() == [[5, 1, 2], [6, 3, 4]]
    assert read["joint"] is OBS["states"]["arm"]


def test_an_empty_map_keeps_every_name():
    assert KeyMap.parse([]).read(OBS).keys() == {"top", "arm", "gripper"}
    assert KeyMap.parse([]).problem(OBS) is None


@pytest.mark.parametrize("entry", ["image", "=top", "state=", "state=arm+", "state=+arm"])
def test_what_is_no_pair_is_refused(entry):
    with pytest.raises(ConfigError, match="expected THEIR_NAME=OUR_NAME"):
        KeyMap.parse([entry])


def test_a_name_that_comes_twice_is_refused_with_the_flag():
    with pytest.raises(ConfigError, match=r"--policy\.names: a comes twice"):
        KeyMap.parse(["a=arm", "a=top"], "--policy.names")


def test_what_is_not_there_or_cannot_be_joined_is_told():
    assert KeyMap.parse(["a=arm", "b=leg+hand"]).problem(OBS) == (
        "observation lacks leg, hand (for b, --policy.key-map); sent: top, arm, gripper"
    )
    assert "top is an image, a joins states" in KeyMap.parse(["a=arm+top"]).problem(OBS)
    assert KeyMap.parse(["a=arm+gripper", "b=top"]).problem(OBS) is None
