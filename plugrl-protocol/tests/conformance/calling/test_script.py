"""What the checker says as a client is right, and varied."""

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.calling.script import LARGE, Script, episode_info
from plugrl_protocol.info import InfoRows
from plugrl_protocol.messages import message_from_wire


@pytest.mark.parametrize("images", [{}, {"image_key": "cam", "image_size": 8}])
def test_messages_survive_the_wire(server_options, images):
    script = Script(server_options(state_key="qpos", state_dim=5, **images))
    for message in (script.infer([7, 0]), script.feedback([7, 0, 2], [True, False, False], info=episode_info(3))):
        again = message_from_wire(decode(encode(message.to_wire())))
        assert again.env_indices.tolist() == message.env_indices.tolist()
        assert again.observation.states["qpos"].shape[1] == 5
        assert ("cam" in again.observation.images) == bool(images)


def test_rows_differ_from_env_to_env(server_options):
    states = Script(server_options()).observation([0, 1, 65_535]).states["obs"]

    assert len({row.tobytes() for row in states}) == 3


def test_no_rows_keep_their_width(server_options):
    assert Script(server_options(state_dim=3)).observation([]).states["obs"].shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "rows"),
    [({}, 3), ({"image_key": "cam", "image_size": 224}, 16), ({"image_key": "c", "image_size": 1000}, 1)],
)
def test_large_is_2_25_mib_or_more(server_options, changes, rows):
    script = Script(server_options(**changes))
    envs = list(range(script.large_rows()))
    observation = script.large_observation(envs)
    size = observation.text.nbytes + sum(image.nbytes for image in observation.images.values())

    assert len(envs) == len(observation) == rows
    assert LARGE - 100 <= size < 2 * LARGE


def test_the_info_of_an_ended_episode_can_be_split():
    rows = InfoRows(episode_info(2), 2)

    assert rows[1]["episode"] == {"r": 1.0, "l": 7, "s": True, "mask": True}
    assert np.ndim(rows[0]["episode"]["r"]) == 0
