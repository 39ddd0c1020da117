"""The rules of the exchange: whose turn it is, and which envs hold an action (SPEC 4). No bytes, no clock."""

import enum
from dataclasses import dataclass

import numpy as np

from plugrl_protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Message, Metadata


class Role(enum.Enum):
    """The two ends."""

    SERVER = "server"
    CLIENT = "client"

    @property
    def peer(self) -> "Role":
        """The other end."""
        return Role.CLIENT if self is Role.SERVER else Role.SERVER


class Turn(enum.Enum):
    """What has to come next."""

    METADATA = "metadata"
    INFER = "infer"
    ACTION = "action"
    FEEDBACK = "feedback"


@dataclass(frozen=True)
class Rule:
    """One row of the table: who sends what in this turn, and which turn follows."""

    sender: Role
    message: type[Message]
    then: Turn


RULES = {
    Turn.METADATA: Rule(Role.SERVER, Metadata, then=Turn.INFER),
    Turn.INFER: Rule(Role.CLIENT, Infer, then=Turn.ACTION),
    Turn.ACTION: Rule(Role.SERVER, Action, then=Turn.FEEDBACK),
    Turn.FEEDBACK: Rule(Role.CLIENT, Feedback, then=Turn.INFER),
}
_AFTER = {rule.message: RULES[rule.then] for rule in RULES.values()}  # an enum's hash takes longer than a type's

_NOBODY: frozenset[int] = frozenset()
_INT64_BYTES = 8


class Exchange:
    """The exchange of one connection; both ends see the same one.

    Attributes:
        turn: What has to come next.
        unheld: The envs of the last feedback that held none. A server discards their rows (SPEC 7.6).
    """

    def __init__(self) -> None:
        self.turn = Turn.METADATA
        self.unheld: frozenset[int] = _NOBODY
        self._rule = RULES[self.turn]
        self._asked = b""  # the envs of the last infer, in its order: the bytes of its int64 array
        # Nearly always those who hold an action are those who were just asked for, and no others: a set is only made
        # where that is not so.
        self._just_answered: bytes | None = None
        self._holders: set[int] = set()

    @property
    def holders(self) -> set[int]:
        """The envs that hold an action: it was answered, and not fed back yet."""
        if self._just_answered is not None:
            self._holders, self._just_answered = set(_listed(self._just_answered)), None
        return self._holders

    def sent(self, sender: Role, message: Message) -> None:
        """Go on by a message of our own.

        Raises:
            LocalProtocolError: It must not be sent now; nothing has changed.
        """
        self._take(sender, message, LocalProtocolError)

    def received(self, sender: Role, message: Message) -> None:
        """Go on by a message of the peer.

        Raises:
            RemoteProtocolError: It must not have been sent now; nothing has changed.
        """
        self._take(sender, message, RemoteProtocolError)

    def _take(self, sender: Role, message: Message, error: type[ProtocolError]) -> None:
        rule = self._rule
        if sender is not rule.sender or type(message) is not rule.message:
            clause = "4.1 exchange/metadata-first" if self.turn is Turn.METADATA else "4.2 exchange/alternation"
            due = f"{self.turn.value} from the {rule.sender.value}"
            raise error(clause, f"expected {due}, got {type(message).__name__.lower()} from the {sender.value}")
        if type(message) is Infer:
            self._asked = message.env_indices.tobytes()
        elif type(message) is Action:
            self._answer(message, error)
        elif type(message) is Feedback:
            self._report(message, error)
        self.turn = rule.then
        self._rule = _AFTER[type(message)]

    def _answer(self, action: Action, error: type[ProtocolError]) -> None:
        rows, asked = action.action.shape[1], len(self._asked) // _INT64_BYTES
        if rows != asked:
            raise error("5.3 action/shape", f"action.data.action: expected {asked} envs on axis 1, got {rows}")
        if action.env_ids is None:
            if error is LocalProtocolError:  # a client bears with it (SPEC 5.3)
                raise error("4.3 action/env-ids", "action.data.env_ids: missing")
        elif action.env_ids.tobytes() != self._asked:
            raise error("4.3 action/env-ids", "action.data.env_ids: expected the infer's env_indices, in their order")
        if self._just_answered is None and not self._holders:
            self._just_answered = self._asked
        else:
            self.holders.update(_listed(self._asked))

    def _report(self, feedback: Feedback, error: type[ProtocolError]) -> None:
        if feedback.env_indices.tobytes() == self._just_answered:
            self.unheld, self._just_answered = _NOBODY, None
            return
        envs = frozenset(feedback.env_indices.tolist())
        unheld = envs - self.holders
        if unheld and error is LocalProtocolError:  # a server bears with it (SPEC 7.6)
            detail = f"feedback.env_indices: env {min(unheld)} holds no action on this connection"
            raise error("7.6 feedback/held", detail)
        self.unheld = unheld
        self._holders -= envs


def _listed(indices: bytes) -> list[int]:
    found: list[int] = np.frombuffer(indices, np.int64).tolist()
    return found
