"""The four messages (SPEC 5): frozen, validated once, with the path of the fault in the error."""

from plugrl_protocol.messages.action import Action
from plugrl_protocol.messages.envelope import Message, message_from_wire
from plugrl_protocol.messages.feedback import Feedback
from plugrl_protocol.messages.infer import Infer
from plugrl_protocol.messages.metadata import Metadata

__all__ = ["Action", "Feedback", "Infer", "Message", "Metadata", "message_from_wire"]
