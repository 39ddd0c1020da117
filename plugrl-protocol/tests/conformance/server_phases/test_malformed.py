"""Every malformed frame is one that the core refuses, at the turn it is meant for (lesson 2)."""

import numpy as np
import pytest
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.conformance.calling.script import Script
from plugrl_protocol.conformance.server_phases.malformed import malformed, wider
from plugrl_protocol.connection import Connection, Role
from plugrl_protocol.errors import RemoteProtocolError
from plugrl_protocol.messages import Action, Infer, Metadata


@pytest.fixture
def script(server_options):
    return Script(server_options())


def waiting_for(turn: str, infer: Infer) -> Connection:
    """A server's connection whose next message is to be an infer or a feedback."""
    connection = Connection(Role.SERVER, now=0.0)
    connection.send(Metadata({}), 0.0)
    if turn == "feedback":
        connection.receive(encode(infer.to_wire()), 0.0)
        connection.send(Action(np.zeros((1, 2, 1)), infer.env_indices), 0.0)
    return connection


def test_the_core_refuses_each_with_a_resync(script):
    infer, feedback = script.infer([0, 1]), script.feedback([0, 1])
    faults = list(malformed(infer.to_wire(), feedback.to_wire()))
    for fault in faults:
        connection = waiting_for(fault.turn, infer)
        if isinstance(fault.frame, str):
            with pytest.raises(RemoteProtocolError) as raised:
                connection.receive_text(0.0)
        elif fault.name == "an infer with NaN in a state":  # a rule of servers: the core lets numbers through
            assert np.isnan(connection.receive(fault.frame, 0.0).observation.states["obs"]).any()
            continue
        else:
            with pytest.raises(RemoteProtocolError) as raised:
                connection.receive(fault.frame, 0.0)
        assert raised.value.close == RESYNC, fault.name

    assert len(faults) > 40
    assert len({fault.name for fault in faults}) == len(faults)


def test_the_three_that_the_mission_names_come_first(script):
    names = [fault.name for fault in malformed(script.infer([0, 1]).to_wire(), script.feedback([0, 1]).to_wire())]

    assert names[:3] == ["an infer without env_indices", "two infers in a row", "an info that cannot be split"]


def test_the_right_messages_are_left_as_they_were(script):
    infer, feedback = script.infer([0, 1]).to_wire(), script.feedback([0, 1]).to_wire()
    before = encode(infer), encode(feedback)
    list(malformed(infer, feedback))
    wider(infer)

    assert (encode(infer), encode(feedback)) == before


def test_wider_states_are_well_formed(script):
    wire = decode(wider(script.infer([0, 1]).to_wire()))

    assert Infer.from_wire(wire).observation.states["obs"].shape == (2, 4)
