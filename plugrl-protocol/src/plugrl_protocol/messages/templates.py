"""A faster way to the same messages: most frames of a connection differ from an earlier one in their numbers only.

`MessageReader` remembers where the numbers of a frame lie. A frame of the same length that is equal to it everywhere
else has the same keys, dtypes and shapes, so all that was checked then holds again; only the new numbers are looked at.
Every other frame goes the whole way, through `decode` and `message_from_wire`, which alone decide what is accepted.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from plugrl_protocol.codec import decode
from plugrl_protocol.codec.fields import read_env_indices
from plugrl_protocol.codec.reader import Reader
from plugrl_protocol.errors import LocalProtocolError
from plugrl_protocol.messages.action import Action
from plugrl_protocol.messages.envelope import Message, message_from_wire
from plugrl_protocol.messages.feedback import Feedback
from plugrl_protocol.messages.infer import Infer
from plugrl_protocol.observation import Observation

Place: TypeAlias = tuple[str, str]
"""Where an array belongs: ("images" or "states", name), or ("", field of the message)."""

_MOST_LENGTHS = 64
_FIRST_SIGHTINGS = 3  # of frames of one length before a template is made of one; doubled whenever it did not fit
_MOST_FIXED = 64 * 2**10  # bytes of a frame that are no numbers: a peer decides how many, and we keep them
_SMALL = 4096  # bytes of an array that are cheaper to copy, and then aligned, than to view


class MessageReader:
    """Reads the frames that one peer sends."""

    def __init__(self) -> None:
        self._known: dict[int, _Length] = {}

    def read(self, frame: bytes) -> Message:
        """The message in `frame`: the same as `message_from_wire(decode(frame))`.

        Raises:
            RemoteProtocolError: It is none of the four, or a field is not as SPEC 5 has it.
        """
        known = self._known.get(len(frame))
        if known is not None and known.template is not None:
            message = known.template.read(frame)
            if message is not None:
                return message
        message = message_from_wire(decode(frame))
        self._sight(frame, known)
        return message

    def _sight(self, frame: bytes, known: "_Length | None") -> None:
        """Count a frame that went the whole way, and make a template of one that comes again and again."""
        if known is None:
            if len(self._known) >= _MOST_LENGTHS:
                self._known.clear()
            known = self._known[len(frame)] = _Length()
        if known.template is not None:
            known.template, known.sightings = None, 0
            known.needed *= 2
        known.sightings += 1
        if known.sightings == known.needed:
            known.template = _Template.of(frame)


class _Length:
    """What is known of the frames of one length."""

    __slots__ = ("needed", "sightings", "template")

    def __init__(self) -> None:
        self.needed = _FIRST_SIGHTINGS
        self.sightings = 0
        self.template: _Template | None = None


class _Template:
    """A frame taken apart: the arrays that may change, and the bytes around them that may not.

    Args:
        frame: An accepted frame.
        message: Its message, with arrays that are views on the frame.
        slots: Where in the frame which array lies.
    """

    def __init__(self, frame: bytes, message: Infer | Action | Feedback, slots: dict[Place, tuple[int, int]]) -> None:
        arrays = _arrays(message)
        self._small, self._large = [], []
        for place, (start, stop) in sorted(slots.items(), key=lambda slot: slot[1]):
            array = arrays[place]
            if stop - start <= _SMALL:
                usual = frame[start:stop] if array.dtype.kind in "bi" else None
                self._small.append((place, start, stop, usual, _frozen(array), array.dtype.kind == "b"))
            else:
                self._large.append((place, start, stop, array.dtype, array.shape, array.dtype.kind == "b"))
        self._fixed: list[tuple[int, bytes]] = []
        at = 0
        for start, stop in [*sorted(slots.values()), (len(frame), len(frame))]:
            self._fixed.append((at, frame[at:start]))
            at = stop
        # What has no slot is the same in every frame. Copies, so that they do not keep this one alive.
        self._same = {place: _frozen(array) for place, array in arrays.items() if place not in slots}
        self._make: Callable[[dict[Place, np.ndarray]], Message] = _MAKERS[type(message)](message)

    @classmethod
    def of(cls, frame: bytes) -> "_Template | None":
        """The template of an accepted frame; None if it has an info, a declaration, a converted array or much text."""
        message = message_from_wire(Reader(frame).read())
        if not isinstance(message, (Infer, Action, Feedback)):
            return None
        if (isinstance(message, Infer) and message.spaces is not None) or (
            isinstance(message, Feedback) and message.info
        ):
            return None
        begin = _address(np.frombuffer(frame, np.uint8))
        slots = {}
        for place, array in _arrays(message).items():
            if array.nbytes:
                start = _address(array) - begin
                if not 0 <= start <= len(frame) - array.nbytes:
                    return None
                slots[place] = start, start + array.nbytes
        if len(frame) - sum(stop - start for start, stop in slots.values()) > _MOST_FIXED:
            return None
        return cls(frame, message, slots)

    def read(self, frame: bytes) -> Message | None:
        """The message in a frame of the same length; None where it differs in more than its numbers."""
        for start, fixed in self._fixed:
            if not frame.startswith(fixed, start):
                return None
        arrays = self._same.copy()
        for place, start, stop, usual, array, is_bool in self._small:
            data = frame[start:stop]
            if data == usual:  # as indices and flags nearly always are
                arrays[place] = array
            elif is_bool and data.strip(b"\0\1"):
                return None
            else:
                arrays[place] = np.ndarray(array.shape, array.dtype, data)
        for place, start, stop, dtype, shape, is_bool in self._large:
            if is_bool and frame[start:stop].strip(b"\0\1"):
                return None
            arrays[place] = np.ndarray(shape, dtype, frame, start)
        try:
            return self._make(arrays)
        except LocalProtocolError:  # env indices: the whole way says what is wrong with them
            return None


def _arrays(message: Infer | Action | Feedback) -> dict[Place, np.ndarray]:
    """Every array of a message that may change from frame to frame without another look at the rest."""
    if isinstance(message, Action):
        found = {("", "action"): message.action}
        return found if message.env_ids is None else {**found, ("", "env_ids"): message.env_ids}
    fields = ["env_indices", "step_ids"]
    fields += ["rewards", "terminated", "truncated"] if isinstance(message, Feedback) else []
    observation = message.observation
    return {
        **{("", name): getattr(message, name) for name in fields},
        **{("images", name): image for name, image in observation.images.items()},
        **{("states", name): state for name, state in observation.states.items()},
    }


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _frozen(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# Making messages of arrays that are known to fit ------------------------------------------------------------------

_set = object.__setattr__
_Maker: TypeAlias = Callable[[dict[Place, np.ndarray]], Message]


def _indices(like: np.ndarray, path: str) -> Callable[[np.ndarray], np.ndarray]:
    """A check of env indices that has nothing to do as long as they stay the same."""
    checked, same = _frozen(like), like.tobytes()

    def check(indices: np.ndarray) -> np.ndarray:
        return checked if indices.tobytes() == same else read_env_indices(indices, path)

    return check


def _observations(like: Observation) -> Callable[[dict[Place, np.ndarray]], Observation]:
    text = _frozen(like.text)
    images = [(name, ("images", name)) for name in like.images]
    states = [(name, ("states", name)) for name in like.states]

    def make(arrays: dict[Place, np.ndarray]) -> Observation:
        observation = object.__new__(Observation)
        _set(observation, "images", {name: arrays[place] for name, place in images})
        _set(observation, "states", {name: arrays[place] for name, place in states})
        _set(observation, "text", text)
        return observation

    return make


def _infers(like: Infer) -> _Maker:
    observe, check = _observations(like.observation), _indices(like.env_indices, "infer.env_indices")
    reuse = None if like.reuse is None else _frozen(like.reuse)

    def make(arrays: dict[Place, np.ndarray]) -> Infer:
        infer = object.__new__(Infer)
        _set(infer, "observation", observe(arrays))
        _set(infer, "env_indices", check(arrays["", "env_indices"]))
        _set(infer, "step_ids", arrays["", "step_ids"])
        _set(infer, "reuse", reuse)
        _set(infer, "spaces", None)
        return infer

    return make


def _feedbacks(like: Feedback) -> _Maker:
    observe, check = _observations(like.observation), _indices(like.env_indices, "feedback.env_indices")
    rows = like.info_rows()

    def make(arrays: dict[Place, np.ndarray]) -> Feedback:
        feedback = object.__new__(Feedback)
        _set(feedback, "observation", observe(arrays))
        _set(feedback, "env_indices", check(arrays["", "env_indices"]))
        for name in ("step_ids", "rewards", "terminated", "truncated"):
            _set(feedback, name, arrays["", name])
        _set(feedback, "info", {})
        _set(feedback, "_info_rows", rows)
        return feedback

    return make


def _actions(_like: Action) -> _Maker:
    def make(arrays: dict[Place, np.ndarray]) -> Action:
        action = object.__new__(Action)
        _set(action, "action", arrays["", "action"])
        _set(action, "env_ids", arrays.get(("", "env_ids")))
        return action

    return make


_MAKERS: dict[type, Callable[[Any], _Maker]] = {Infer: _infers, Feedback: _feedbacks, Action: _actions}
