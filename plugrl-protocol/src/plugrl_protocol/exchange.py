"""The rules of the exchange: whose turn it is, and which envs hold an action (SPEC 4). No bytes, no clock, no role."""

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
    """One row of the table: who sends what in this turn, and whose turn follows."""

    sender: Role
    message: type[Message]
    then: Turn


RULES = {
    Turn.METADATA: Rule(Role.SERVER, Metadata, Turn.INFER),
    Turn.INFER: Rule(Role.CLIENT, Infer, Turn.ACTION),
    Turn.ACTION: Rule(Role.SERVER, Action, Turn.FEEDBACK),
    Turn.FEEDBACK: Rule(Role.CLIENT, Feedback, Turn.INFER),
}


class Exchange:
    """One connection's exchange as either end sees it.

    Attributes:
        turn: What has to come next.
        holders: The envs that hold an action: answered, and not fed back yet.
        unheld: The envs of the last feedback that held no action. Their rows are to be discarded (SPEC 7.6).
    """

    def __init__(self) -> None:
        self.turn = Turn.METADATA
        self.holders: set[int] = set()
        self.unheld: frozenset[int] = frozenset()
        self._asked: np.ndarray = np.zeros(0, np.int64)

    def sent(self, sender: Role, message: Message) -> None:
        """Our own `message` is about to leave.

        Raises:
            LocalProtocolError: It must not; nothing has changed.
        """
        self._advance(sender, message, LocalProtocolError)

    def received(self, sender: Role, message: Message) -> None:
        """The peer's `message` has arrived.

        Raises:
            RemoteProtocolError: The peer must not have sent it now; nothing has changed.
        """
        self._advance(sender, message, RemoteProtocolError)

    def _advance(self, sender: Role, message: Message, error: type[ProtocolError]) -> None:
        rule = RULES[self.turn]
        if sender is not rule.sender or type(message) is not rule.message:
            clause = "4.1 exchange/metadata-first" if self.turn is Turn.METADATA else "4.2 exchange/alternation"
            name = type(message).__name__.lower()
            raise error(
                clause, f"expected {self.turn.value} from the {rule.sender.value}, got {name} from the {sender.value}"
            )
        if isinstance(message, Infer):
            self._asked = message.env_indices
        elif isinstance(message, Action):
            self._answer(message, error)
        elif isinstance(message, Feedback):
            self._feed_back(message, error)
        self.turn = rule.then

    def _answer(self, action: Action, error: type[ProtocolError]) -> None:
        asked = len(self._asked)
        if action.env_ids is None and error is LocalProtocolError:  # only a client has to bear with it (SPEC 5.3)
            raise error("4.3 action/env-ids", "action.data.env_ids: missing")
        if action.action.shape[1] != asked:
            raise error(
                "5.3 action/shape", f"action.data.action: expected {asked} envs on axis 1, got {action.action.shape[1]}"
            )
        if action.env_ids is not None and not np.array_equal(action.env_ids, self._asked):
            raise error("4.3 action/env-ids", "action.data.env_ids: expected the infer's env_indices in the same order")
        self.holders.update(self._asked.tolist())

    def _feed_back(self, feedback: Feedback, error: type[ProtocolError]) -> None:
        named = set(feedback.env_indices.tolist())
        unheld = frozenset(named - self.holders)
        if unheld and error is LocalProtocolError:
            raise error(
                "7.6 feedback/held", f"feedback.env_indices: env {min(unheld)} holds no action on this connection"
            )
        self.unheld = unheld
        self.holders -= named
