"""The floors carry PlugRL's real messages: our own parser accepts them, and our encoder needs as many bytes."""

import payloads
import pytest
from payloads import SHAPES
from plugrl_protocol import codec
from plugrl_protocol.messages import message_from_wire


def messages(shape):
    chunk = payloads.action_chunk(shape.envs)
    request = payloads.infer(shape)
    return [payloads.metadata(), request, payloads.action(chunk, request["env_indices"]), payloads.feedback(shape)]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("index", range(4), ids=["metadata", "infer", "action", "feedback"])
def test_plugrl_reads_the_message_and_would_send_as_many_bytes(shape, index):
    frame = payloads.pack(messages(shape)[index])
    assert len(codec.encode(message_from_wire(codec.decode(frame)).to_wire())) == len(frame)


def test_hooks_bring_arrays_back():
    request = payloads.infer(SHAPES["n8"])
    returned = payloads.unpack(payloads.pack(request))
    assert (returned["data"]["states"]["obs"] == request["data"]["states"]["obs"]).all()
    assert returned["env_indices"].tolist() == list(range(8))


def test_hooks_refuse_what_has_no_wire_form():
    with pytest.raises(TypeError, match="cannot send set"):
        payloads.pack({"message_type": set()})
