"""SPEC 5.1: no key is required, what we read is checked."""

from typing import Any

import numpy as np
import pytest
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Metadata


def test_no_key_is_required_and_absent_means_unknown() -> None:
    metadata = Metadata.from_wire({"message_type": "metadata", "data": {}})
    assert metadata.features == frozenset()
    assert metadata.action_horizon is None
    assert metadata.protocol_version is None


def test_what_is_said_is_read_and_the_rest_kept() -> None:
    data = {"protocol_version": 2, "action_horizon": np.int64(8), "features": ["a", "b"], "robot": {"arms": 2}}
    metadata = Metadata.from_wire(decode(encode(Metadata(data).to_wire())))
    assert metadata.features == {"a", "b"}
    assert metadata.action_horizon == 8
    assert metadata.protocol_version == 2
    assert metadata.data["robot"] == {"arms": 2}


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (None, "metadata.data: expected map, got nil"),
        ([], "metadata.data: expected map, got list"),
        ({b"x": 1}, "metadata.data: expected str keys, got bin b'x'"),
        ({"features": "a"}, "metadata.data.features: expected list of str, got str"),
        ({"features": ["a", 1]}, "metadata.data.features: expected list of str, got list"),
        ({"action_horizon": 0}, "metadata.data.action_horizon: expected int >= 1, got 0"),
        ({"action_horizon": "4"}, "metadata.data.action_horizon: expected int, got str"),
        ({"protocol_version": True}, "metadata.data.protocol_version: expected int, got bool"),
        ({"protocol_version": None}, "metadata.data.protocol_version: expected int, got nil"),
    ],
)
def test_faults(data: Any, detail: str) -> None:
    with pytest.raises(RemoteProtocolError) as remote:
        Metadata.from_wire({"data": data})
    with pytest.raises(LocalProtocolError) as local:
        Metadata(data)
    assert str(remote.value) == str(local.value) == detail
    assert remote.value.clause == "5.1 metadata/data"


def test_missing_data() -> None:
    with pytest.raises(RemoteProtocolError, match="metadata: missing key 'data'"):
        Metadata.from_wire({})
