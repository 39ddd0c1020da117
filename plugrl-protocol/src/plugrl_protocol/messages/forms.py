"""A faster way to the same frames: most messages of a connection differ from an earlier one in their numbers only.

`MessageWriter` remembers a frame with its numbers left out. A message of the same kind, keys, dtypes and shapes has the
same frame with other numbers. Every other message goes the whole way, through `encode`, which alone decides what may
travel. `templates` is the same for reading.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from plugrl_protocol.codec.encoder import Pieces, array_head, encode, encode_pieces
from plugrl_protocol.messages.action import Action
from plugrl_protocol.messages.envelope import Message
from plugrl_protocol.messages.feedback import Feedback
from plugrl_protocol.messages.infer import Infer

_Formed: TypeAlias = Infer | Feedback | Action

_MOST_FORMS = 64
_FIRST_SIGHTINGS = 3  # of messages alike before a form is made of one; doubled whenever it did not fit
_MOST_BYTES = 64 * 2**10  # of a frame: larger ones are written in pieces, and their arrays moved once

# The arrays of a message outside its observation, in the order in which they travel. Their dtypes are the message's
# own doing, except for that of an action.
_FIELDS: dict[type, Callable[[Any], tuple[np.ndarray, ...]]] = {
    Infer: lambda infer: (infer.env_indices, infer.step_ids),
    Feedback: lambda feedback: (
        feedback.rewards,
        feedback.terminated,
        feedback.truncated,
        feedback.env_indices,
        feedback.step_ids,
    ),
    Action: lambda action: (action.env_ids, action.action),
}
_to_bytes = np.ndarray.tobytes


class MessageWriter:
    """Writes the frames that this end sends."""

    def __init__(self) -> None:
        self._known: dict[object, _Alike] = {}

    def write(self, message: Message) -> Pieces:
        """The frame of `message`, as pieces to be joined: what `encode_pieces(message.to_wire())` comes to.

        Raises:
            LocalProtocolError: Something in it may not travel.
        """
        key = _likeness(message)
        if key is None:
            return encode_pieces(message.to_wire())
        known = self._known.get(key)
        if known is not None and known.form is not None:
            frame = known.form.write(message)
            if frame is not None:
                return [frame]
        frame = encode(message.to_wire())
        self._sight(key, known, message, frame)
        return [frame]

    def _sight(self, key: object, known: "_Alike | None", message: Message, frame: bytes) -> None:
        """Count a message that went the whole way, and make a form of what comes again and again."""
        if known is None:
            if len(self._known) >= _MOST_FORMS:
                self._known.clear()
            known = self._known[key] = _Alike()
        if known.form is not None:
            known.form, known.sightings = None, 0
            known.needed *= 2
        known.sightings += 1
        if known.sightings == known.needed:
            known.form = _Form.of(message, frame)


class _Alike:
    """What is known of messages that may have the same form."""

    __slots__ = ("form", "needed", "sightings")

    def __init__(self) -> None:
        self.needed = _FIRST_SIGHTINGS
        self.sightings = 0
        self.form: _Form | None = None


class _Form:
    """A frame with the bytes of its arrays left out.

    Args:
        message: A message that has a likeness and no empty array.
        pieces: Its frame: at odd places the bytes of its arrays, between them all the others.
    """

    def __init__(self, message: _Formed, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._fields = _FIELDS[type(message)]
        self._is_feedback = isinstance(message, Feedback)
        self._action = message.action.dtype if isinstance(message, Action) else None
        self._states: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
        self._text = b""
        if not isinstance(message, Action):
            states = message.observation.states
            self._states = [(name, state.dtype, state.shape) for name, state in states.items()]
            self._text = message.observation.text.tobytes()

    @classmethod
    def of(cls, message: Message, frame: bytes) -> "_Form | None":
        """The form of a message and its frame; None where none is worth it."""
        assert isinstance(message, _Formed)  # noqa: S101 - others have no likeness
        arrays = _arrays(message)
        if len(frame) > _MOST_BYTES or not all(array.nbytes for array in arrays):
            return None
        pieces, at = [], 0
        for array in arrays:
            head = array_head(array.nbytes)
            start = frame.index(head, at) + len(head)
            pieces += [frame[at:start], frame[start : start + array.nbytes]]
            at = start + array.nbytes
        return cls(message, [*pieces, frame[at:]])

    def write(self, message: Any) -> bytes | None:
        """The frame of a message of the same likeness; None where it differs in more than its numbers."""
        data: list[bytes] = []
        if self._action is None:
            observation = message.observation
            states = observation.states
            if len(states) != len(self._states):
                return None
            for (name, state), known in zip(states.items(), self._states):  # noqa: B905 - as many
                if (name, state.dtype, state.shape) != known:
                    return None
                data.append(state.tobytes())
            text = observation.text.tobytes()
            if text != self._text:
                return None
            data.append(text)
        elif message.action.dtype is not self._action:
            return None
        data += map(_to_bytes, self._fields(message))
        if self._is_feedback and (data[-4] + data[-3]).strip(b"\0\1"):  # the flags: what bool arrays hold on the wire
            return None
        pieces = self._pieces.copy()
        pieces[1::2] = data
        return b"".join(pieces)


def _likeness(message: Message) -> object:
    """What messages of one form have in common; None where a message has none."""
    if isinstance(message, Infer):
        if message.reuse is None and message.spaces is None and not message.observation.images:
            return Infer, len(message.env_indices)
    elif isinstance(message, Feedback):
        if not message.info and not message.observation.images:
            return Feedback, len(message.env_indices)
    elif isinstance(message, Action) and message.env_ids is not None and message.action.dtype.kind != "b":
        return message.action.shape
    return None


def _arrays(message: _Formed) -> list[np.ndarray]:
    """All its arrays, in the order in which they travel."""
    fields = _FIELDS[type(message)](message)
    if isinstance(message, Action):
        return [*fields]
    return [*message.observation.states.values(), message.observation.text, *fields]
