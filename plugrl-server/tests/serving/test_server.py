"""End to end over real sockets: what each kind of client sees."""

import numpy as np


def test_metadata_comes_first_and_then_actions_answer_infers(serve, join, fakes):
    server = serve(fakes.algorithm())
    client = join(server)
    assert client.metadata["message_type"] == "metadata"
    assert client.metadata["data"]["protocol_version"] == 1
    assert client.metadata["data"]["features"] == ["declare-spaces"]
    data = client.ask((4, 7))
    assert data["env_ids"].tolist() == [4, 7]
    assert data["action"].shape == (2, 2, 3)
    assert data["action"][1, :, 0].tolist() == np.float32([0.1, 1.1]).tolist()  # time-major
