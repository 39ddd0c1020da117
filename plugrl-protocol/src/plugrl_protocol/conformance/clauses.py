"""The clauses of SPEC.md: the only list of them. Reports, vectors and the spec name a clause by its id."""

import enum
from dataclasses import dataclass


class Level(enum.Enum):
    """How binding a clause is. Breaking a MUST is a violation; falling short of a SHOULD is a note."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Side(enum.Enum):
    """Who has to keep a clause."""

    CLIENT = "client"
    SERVER = "server"
    BOTH = "both"

    def binds(self, side: "Side") -> bool:
        """Whether the clause binds `side`, which is one of the two ends."""
        return self in (side, Side.BOTH)


class Check(enum.Enum):
    """What checks a clause: the vectors, a scenario of the client checker, or a phase of the server checker."""

    VECTOR = "vector"
    WATCH = "watch"
    BASIC = "probe basic"
    RESYNC = "probe resync"
    TEXT = "probe text"
    REJECT = "probe reject"
    EXCHANGE = "server exchange"
    ERRORS = "server errors"
    SCOPING = "server scoping"
    REUSE = "server reuse"
    SPACES = "server spaces"
    AUTH = "server auth"
    STOP = "server stop"

    @property
    def grades(self) -> Side | None:
        """The end that this check grades; None: a codec, at either end."""
        if self is Check.VECTOR:
            return None
        return Side.SERVER if self.value.startswith("server") else Side.CLIENT


@dataclass(frozen=True)
class Clause:
    """One rule of the spec.

    Attributes:
        id: Section, group and name, as in `4.2 exchange/alternation`; it never changes.
        level: How binding it is.
        side: Who has to keep it.
        text: The rule in one sentence.
        checks: What checks it; empty where right and wrong look alike on the wire.
    """

    id: str
    level: Level
    side: Side
    text: str
    checks: frozenset[Check] = frozenset()

    def checked_on(self, side: Side) -> bool:
        """Whether a checker of `side` can check it."""
        return any(check.grades is side for check in self.checks)


def numeric(clause_id: str) -> tuple[int, ...]:
    """The section of a clause id as a sort key: 4.10 comes after 4.9."""
    section = clause_id.partition(" ")[0]
    return tuple(int(number) if number.isdecimal() else 0 for number in section.split("."))


_CLIENT, _SERVER, _BOTH = Side.CLIENT, Side.SERVER, Side.BOTH
_VECTOR, _WATCH, _BASIC, _RESYNC, _TEXT, _REJECT, _EXCHANGE, _ERRORS, _SCOPING, _REUSE, _SPACES, _AUTH, _STOP = (
    frozenset({check}) for check in Check
)
_LIVE = _WATCH | _BASIC | _RESYNC  # whatever takes whole exchanges from a client
_PROBE = _BASIC | _RESYNC
_EVERY = _LIVE | _TEXT | _EXCHANGE
_NOTHING: frozenset[Check] = frozenset()


def _must(clause_id: str, side: Side, checks: frozenset[Check], text: str) -> Clause:
    return Clause(clause_id, Level.MUST, side, text, checks)


def _should(clause_id: str, side: Side, checks: frozenset[Check], text: str) -> Clause:
    return Clause(clause_id, Level.SHOULD, side, text, checks)


CLAUSES = (
    # 1 Layers
    _must("1 layers/websocket", _BOTH, _EVERY, "The connection is a WebSocket as RFC 6455 has it."),
    _must("1.1 framing/compression", _BOTH, _EVERY, "permessage-deflate is neither offered nor accepted."),
    _must("1.1 framing/size", _BOTH, _BASIC | _EXCHANGE, "A frame over 1 MiB is accepted; one over the cap: 1009."),
    _must("1.2 auth/api-key", _SERVER, _AUTH, "A server with a key answers 401 to a handshake without that key."),
    _must("1.2 auth/ignored", _SERVER, _EXCHANGE, "A server without a key ignores the Authorization header."),
    _should("1.3 http/healthz", _SERVER, _EXCHANGE, "GET /healthz answers 200 while the process is alive."),
    _should("1.3 http/readyz", _SERVER, _EXCHANGE, "GET /readyz answers 200 when a client would be served."),
    # 2 Envelope
    _must("2 envelope/message-type", _BOTH, _VECTOR | _EVERY, "A message is a map with one of four message_types."),
    # 3 Serialization
    _must("3 codec/encode", _BOTH, _VECTOR, "An encoder refuses what a decoder would, and writes arrays as openpi."),
    _must("3 codec/msgpack", _BOTH, _VECTOR | _EVERY, "A frame is exactly one msgpack value, without ext types."),
    _must("3.1 codec/keys", _BOTH, _VECTOR | _EVERY, "Map keys are str, those of arrays and scalars bin."),
    _must("3.1 codec/unknown-keys", _BOTH, _BASIC | _EXCHANGE, "Unknown keys of envelope and metadata are ignored."),
    _must("3.2 codec/array", _BOTH, _VECTOR | _EVERY, "Arrays and scalars have an allowed dtype and exact bytes."),
    _must("3.3 codec/limits", _BOTH, _VECTOR | _EVERY, "At most 16 levels and 65,536 elements in a message."),
    _must("3.4 observation/text", _BOTH, _VECTOR | _EVERY, "text is str[n]: a <U array, or (Gap) a list of str."),
    # 4 Exchange
    _must("4.1 exchange/metadata-first", _SERVER, _VECTOR | _EXCHANGE, "The server's first message is metadata."),
    _must("4.2 exchange/alternation", _BOTH, _VECTOR | _LIVE | _EXCHANGE, "infer, action, feedback, in turn."),
    _must("4.2 exchange/progress", _BOTH, _LIVE | _EXCHANGE, "What is due comes: an exchange is completed."),
    _must("4.3 action/env-ids", _SERVER, _VECTOR | _EXCHANGE, "env_ids equals the infer's env_indices, in order."),
    _must("4.3 action/env-ids-read", _CLIENT, _NOTHING, "A client does not rely on anything but env_ids."),
    _must("4.3 feedback/any-set", _SERVER, _EXCHANGE, "The feedback's envs need not be the infer's envs."),
    _must("4.3 feedback/any-set-client", _CLIENT, _NOTHING, "A client bears that feedback and infer sets differ."),
    _must("4.4 indices/dtype", _CLIENT, _VECTOR | _LIVE, "env_indices is an int array [n]."),
    _must("4.4 indices/empty", _CLIENT, _VECTOR | _LIVE, "A message names at least one env."),
    _must("4.4 indices/range", _CLIENT, _VECTOR | _LIVE, "Env indices are 0..65,535."),
    _must("4.4 indices/unique", _CLIENT, _VECTOR | _LIVE, "No env is named twice in a message."),
    _should("4.4 indices/width", _CLIENT, _LIVE, "env_indices and step_ids are i8."),
    _must("4.4 indices/scope", _SERVER, _SCOPING, "An env index belongs to one connection."),
    # 5.1 metadata
    _must("5.1 metadata/data", _SERVER, _VECTOR | _EXCHANGE, "metadata.data is a map; known keys have their type."),
    _must("5.1 metadata/sent", _SERVER, _EXCHANGE, "The server sends metadata without being asked."),
    _must("5.1 metadata/wait", _CLIENT, _BASIC, "A client sends nothing before it has the metadata."),
    _must("5.1 metadata/any-key", _CLIENT, _NOTHING, "A client requires no metadata key."),
    _must("5.1 metadata/version", _CLIENT, _RESYNC, "A client that reads a version above 1 warns and goes on."),
    _must("5.1 metadata/horizon", _SERVER, _EXCHANGE, "An action has the action_horizon that metadata declares."),
    _must("5.1 metadata/action-dim", _SERVER, _EXCHANGE, "An action has the action_dim that metadata declares."),
    # 5.2 infer
    _must("5.2 infer/shape", _CLIENT, _VECTOR | _LIVE, "infer has data, env_indices and step_ids of n rows."),
    _must("5.2 infer/ragged", _SERVER, _EXCHANGE, "n may change from message to message."),
    _should("5.2 infer/step-ids", _CLIENT, _LIVE, "step_ids counts the chunks of the episode (Gap: unread)."),
    _must("5.2 observation/keys", _CLIENT, _VECTOR | _LIVE, "An observation is exactly images, states and text."),
    _must("5.2 observation/shape", _CLIENT, _VECTOR | _LIVE, "images are u1[n,h,w,c], states numeric [n,d] arrays."),
    _must("5.2 observation/finite", _CLIENT, _LIVE, "An infer holds no NaN and no infinity."),
    _should("5.2 observation/float64", _CLIENT, _LIVE, "States are f8."),
    # 5.3 action
    _must("5.3 action/shape", _SERVER, _VECTOR | _EXCHANGE, "action is numeric [H,n,...] with H >= 1."),
    _must("5.3 action/time-major", _BOTH, _PROBE | _EXCHANGE, "Axis 0 is the horizon, axis 1 the envs of the infer."),
    _must("5.3 action/dtype", _CLIENT, _PROBE, "A client reads an action by the dtype that it states."),
    _must("5.3 action/prefix", _CLIENT, _PROBE, "A client runs at least 1 and at most H steps of a chunk."),
    _must("5.3 action/finite", _SERVER, _EXCHANGE, "An action holds no NaN and no infinity."),
    _must("5.3 action/own-order", _CLIENT, _NOTHING, "Where env_ids is missing a client assumes its own order."),
    # 5.4 feedback
    _must("5.4 feedback/shape", _CLIENT, _VECTOR | _LIVE, "feedback has data, env_indices and step_ids of m rows."),
    _must("5.4 feedback/keys", _CLIENT, _VECTOR | _LIVE, "data is exactly obs, rewards, the flags and info."),
    _must("5.4 feedback/rewards", _CLIENT, _VECTOR | _LIVE, "rewards is float[m]."),
    _should("5.4 feedback/rewards-float32", _CLIENT, _LIVE, "rewards is f4."),
    _must("5.4 feedback/flags", _CLIENT, _VECTOR | _LIVE, "terminated and truncated are b1[m]."),
    _must("5.4 feedback/finite", _CLIENT, _LIVE, "Rewards and observation hold no NaN and no infinity."),
    _must("5.4 feedback/reward-sum", _CLIENT, _PROBE, "A reward is the sum over the steps run of the chunk."),
    _must("5.4 feedback/final-observation", _CLIENT, _PROBE, "On a done step obs is that step's own observation."),
    _must("5.4 feedback/early-end", _CLIENT, _PROBE, "A set flag ends the chunk."),
    _must("5.4 feedback/next-episode", _CLIENT, _PROBE, "After a done step the next infer shows a new episode."),
    _must("5.4 feedback/info", _BOTH, _VECTOR | _LIVE | _EXCHANGE | _ERRORS, "info is {} or splits into m rows."),
    _must("5.4 feedback/episode", _CLIENT, _VECTOR | _LIVE, "info.episode holds r, l, s, mask of m rows."),
    _must("5.4 feedback/no-reply", _SERVER, _EXCHANGE, "A feedback has no reply."),
    # 6 Batching
    _must("6 batching/idle", _SERVER, _EXCHANGE, "An idle or silent client holds nobody up."),
    # 7 Closing
    _must("7.1 closing/stop", _BOTH, _LIVE | _STOP, "The run ends with 1001 plugrl-server-stop; no reconnect."),
    _must("7.1 closing/exit-status", _BOTH, _LIVE | _STOP, "A process whose run ended well exits with 0."),
    _must("7.2 closing/resync", _SERVER, _ERRORS, "A protocol error: 1001 plugrl-server-resync."),
    _must("7.2 closing/isolation", _SERVER, _ERRORS, "A protocol error closes no other connection and no server."),
    _must("7.2 closing/reconnect", _CLIENT, _RESYNC, "After a resync a client reconnects and begins with an infer."),
    _must("7.3 closing/feedback-timeout", _SERVER, _NOTHING, "No feedback in time: 1001 Feedback timeout."),
    _must("7.4 closing/internal-error", _SERVER, _NOTHING, "A server's exception: 1011 Internal server error."),
    _must("7.4 closing/text-frame", _BOTH, _LIVE | _TEXT | _ERRORS, "No text frames; to a client one is fatal."),
    _must("7.4 closing/silence", _CLIENT, _TEXT, "After a text frame a client sends nothing more."),
    _should("7.5 closing/done", _CLIENT, _WATCH, "A finished client sends a close frame with 1000."),
    _must("7.6 feedback/held", _CLIENT, _LIVE, "A feedback names envs that hold an action."),
    _must("7.6 feedback/no-step-state", _SERVER, _SCOPING, "Feedback without step state is discarded; no close."),
    _must("7.6 reconnect/drop-feedback", _CLIENT, _RESYNC, "A feedback held at a resync is dropped."),
    _must("7.6 reconnect/drop-other", _CLIENT, _NOTHING, "A feedback held at any other close is dropped."),
    _must("7.6 reconnect/all-envs", _CLIENT, _RESYNC, "After a reconnect all envs ask for new chunks."),
    _must("7.7 closing/final", _CLIENT, _REJECT, "1008, 1009 and HTTP 401 are final: no retry, non-zero exit."),
    _must("7.7 closing/back-off", _CLIENT, _NOTHING, "Reconnecting backs off, up to a limit of attempts."),
    _must("7.7 closing/liveness", _BOTH, _LIVE | _EXCHANGE, "WebSocket pings are answered."),
    # 8 Conformance
    _must("8.1 probe/environment", _CLIENT, _PROBE, "Under --probe the client runs the probe environment."),
    # 10 Features
    _must("10.1 reuse/shape", _CLIENT, _VECTOR | _LIVE, "reuse is b1[n]; data has the rows that are not reused."),
    _must("10.1 reuse/unoffered", _CLIENT, _VECTOR | _LIVE, "reuse is sent only to a server that offers it."),
    _must("10.1 reuse/held", _BOTH, _VECTOR | _LIVE | _REUSE, "Only an observation that the server holds is reused."),
    _must("10.1 reuse/answered", _SERVER, _REUSE, "A reuse is answered as if the observation had been sent."),
    _must("10.2 spaces/action", _CLIENT, _VECTOR | _LIVE | _REJECT, "spaces.action is one of four kinds."),
    _must("10.2 spaces/env", _CLIENT, _VECTOR | _LIVE | _REJECT, "spaces.env is a str."),
    _must("10.2 spaces/num_envs", _CLIENT, _VECTOR | _LIVE | _REJECT, "spaces.num_envs is an int >= 1."),
    _must("10.2 spaces/max_episode_steps", _CLIENT, _VECTOR | _LIVE | _REJECT, "It is an int >= 1."),
    _must("10.2 spaces/client", _CLIENT, _VECTOR | _LIVE | _REJECT, "spaces.client is an int."),
    _must("10.2 spaces/unoffered", _CLIENT, _LIVE, "spaces is sent only to a server that offers it."),
    _must("10.2 spaces/first-infer", _CLIENT, _LIVE, "spaces is sent in the first infer of a connection only."),
    _must("10.2 spaces/agree", _SERVER, _SPACES, "A declaration that fits the run is answered in its space."),
    _must("10.2 spaces/disagree", _SERVER, _SPACES, "Another one is closed with 1008, and both sides are named."),
)

BY_ID = {clause.id: clause for clause in CLAUSES}
