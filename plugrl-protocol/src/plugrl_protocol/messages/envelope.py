"""The envelope: which message a map is (SPEC 2)."""

from typing import TypeAlias

from plugrl_protocol.codec.fields import mismatch, read_map
from plugrl_protocol.errors import LocalProtocolError, blame_peer
from plugrl_protocol.messages.action import Action
from plugrl_protocol.messages.feedback import Feedback
from plugrl_protocol.messages.infer import Infer
from plugrl_protocol.messages.metadata import Metadata

Message: TypeAlias = Metadata | Infer | Action | Feedback

_TYPES: dict[str, type[Message]] = {"metadata": Metadata, "infer": Infer, "action": Action, "feedback": Feedback}
_CLAUSE = "2 envelope/message-type"


@blame_peer
def message_from_wire(value: object) -> Message:
    """The message a decoded frame holds; unknown keys of the envelope are ignored.

    Raises:
        RemoteProtocolError: It is none of the four, or a field is not as SPEC 5 has it; the detail has the path.
    """
    envelope = read_map(value, "message", _CLAUSE)
    kind = envelope.get("message_type")
    if not isinstance(kind, str):
        raise mismatch(_CLAUSE, "message.message_type", "str", kind)
    if kind not in _TYPES:
        raise LocalProtocolError(_CLAUSE, f"message.message_type: expected {', '.join(_TYPES)}, got {kind!r:.40}")
    return _TYPES[kind].from_wire(envelope)
