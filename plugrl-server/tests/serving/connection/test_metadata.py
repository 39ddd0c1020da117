"""SPEC 5.1: what the server says first."""

import pytest
from plugrl_protocol.errors import LocalProtocolError
from plugrl_server.serving.connection.metadata import server_metadata


def test_it_names_protocol_server_and_features():
    data = server_metadata({}, {}).data
    assert data["protocol_version"] == 1
    assert data["server"] == "plugrl-server"
    assert data["server_version"]
    assert data["features"] == ["reuse-feedback-obs", "declare-spaces"]


def test_what_is_unknown_is_absent():
    assert "action_dim" not in server_metadata({}, {}).data
    assert server_metadata({"action_dim": 3}, {}).data["action_dim"] == 3


def test_the_operators_words_go_over_the_top():
    data = server_metadata({"policy": "Gaussian"}, {"policy": "ours", "site": "lab 2"}).data
    assert (data["policy"], data["site"]) == ("ours", "lab 2")


def test_a_word_that_breaks_the_message_is_refused():
    with pytest.raises(LocalProtocolError, match="features"):
        server_metadata({}, {"features": "none"})
