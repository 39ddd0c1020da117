"""SPEC 10.1: an observation that went out in a feedback need not be sent again, and nobody can tell."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugrl_protocol.closing import RESYNC
from plugrl_protocol.codec import encode
from plugrl_protocol.connection import REUSE, Connection, Role, Timeouts, Turn
from plugrl_protocol.errors import LocalProtocolError, RemoteProtocolError
from plugrl_protocol.messages import Action, Feedback, Infer, Metadata
from plugrl_protocol.observation import Observation
from plugrl_protocol.reuse import unchanged

ENVS = [0, 1, 2, 3, 65_535]
TEXTS = ["", "pick", "put the red cube into the drawer", "\N{MECHANICAL ARM}", "\N{MECHANICAL ARM} up"]
QUIET = Timeouts(ping_interval=None, metadata=None, feedback=None)


def shown(env: int, version: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """What an env shows: an image, two states (NaN and -0.0 among them) and a text."""
    rng = random.Random(f"{env} {version}")
    numbers = np.array([env, version, rng.choice([np.nan, -0.0, 0.0, 1.5])])
    return np.array(rng.choices(range(256), k=12), np.uint8), numbers, numbers[2:].astype(np.float16), rng.choice(TEXTS)


def observe(versions: Mapping[int, int], envs: Sequence[int], *, shuffled: bool = False) -> Observation:
    """The observation of some envs, with keys in either order and the text in either form (SPEC 3.4)."""
    rows = [shown(env, versions.get(env, 0)) for env in envs]
    image, long, short = (
        np.array([row[part] for row in rows], dtype).reshape(len(rows), *shape)
        for part, (dtype, shape) in enumerate([("u1", (2, 2, 3)), ("f8", (3,)), ("f2", (1,))])
    )
    states = {"short": short, "long": long} if shuffled else {"long": long, "short": short}
    text = [row[3] for row in rows]
    return Observation({"cam": image}, states, np.array(text, "<U99") if shuffled else text)


def ask(envs: Sequence[int], observation: Observation, reuse: Sequence[bool] | np.ndarray | None = None) -> Infer:
    flags = None if reuse is None else np.array(reuse, bool)
    return Infer(observation, np.array(envs), np.arange(len(envs)), flags)


def report(envs: Sequence[int], observation: Observation, ended: Sequence[int] = (), **info: Any) -> Feedback:
    done = np.isin(envs, list(ended))
    half = np.arange(len(envs)) % 2 == 0
    zeros = np.zeros(len(envs), np.int64)
    rewards = zeros.astype(np.float32)
    return Feedback(np.array(envs), zeros, observation, rewards, done & half, done & ~half, info)


class Pair:
    """Both ends of a connection whose server offers the feature."""

    def __init__(self, max_frame: int = 2**28) -> None:
        self.server = Connection(Role.SERVER, now=0, timeouts=QUIET, max_frame=max_frame)
        self.client = Connection(Role.CLIENT, now=0, timeouts=QUIET, max_frame=max_frame)
        self.client.receive(self.server.send(Metadata({"features": [REUSE]}), 0), 0)
        self.sent = 0

    def to_server(self, message: Infer | Feedback) -> Any:
        frame = self.client.send(message, 0)
        self.sent += len(frame)
        return self.server.receive(frame, 0)

    def act(self, infer: Infer) -> None:
        rows = len(infer.env_indices)
        self.client.receive(self.server.send(Action(np.zeros((1, rows, 1)), infer.env_indices), 0), 0)

    def exchange(self, infer: Infer, feedback: Feedback) -> Infer:
        got: Infer = self.to_server(infer)
        self.act(got)
        self.to_server(feedback)
        return got

    def fed(self, envs: Sequence[int] = (3, 1), ended: Sequence[int] = (), **info: Any) -> "Pair":
        """One exchange, after which the envs show their version 1."""
        versions = dict.fromkeys(envs, 1)
        self.exchange(ask(envs, observe({}, envs)), report(envs, observe(versions, envs), ended, **info))
        return self


def bits(infer: Infer) -> list[object]:
    """All there is to an infer, in its order."""
    seen = infer.observation
    arrays = [("step_ids", infer.step_ids), ("indices", infer.env_indices), ("text", seen.text)]
    arrays += [*seen.images.items(), *seen.states.items()]
    return [infer.reuse, infer.spaces, [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in arrays]]


SOME = st.sets(st.sampled_from(ENVS))
ORDERED = st.lists(st.sampled_from(ENVS), unique=True)
EXCHANGES = st.lists(st.tuples(ORDERED, SOME, ORDERED, SOME, SOME, st.booleans()), min_size=1, max_size=12)


@given(EXCHANGES)
def test_the_server_sees_what_it_would_have_seen(
    exchanges: list[tuple[list[int], set[int], list[int], Any, Any, bool]],
) -> None:
    """Whoever asks and reports, in whatever sets and orders, and however much of what may be reused is sent anyway."""
    thrifty, plain = Pair(), Pair()
    versions, held, holders, seen = dict.fromkeys(ENVS, 0), set[int](), set[int](), []
    for asked, sent_anyway, reporting, ended, changed, shuffled in exchanges:
        asked = asked or ENVS
        reuse = np.isin(asked, list(held - sent_anyway))
        some = [env for env, reused in zip(asked, reuse, strict=True) if not reused]
        infers = [thrifty.to_server(ask(asked, observe(versions, some, shuffled=shuffled), reuse))]
        infers.append(plain.to_server(ask(asked, observe(versions, asked, shuffled=shuffled))))
        seen.append((infers[0], bits(infers[1])))
        holders |= set(asked)
        reporting = [env for env in reporting if env in holders] or sorted(holders)
        holders -= set(reporting)
        versions.update({env: versions[env] + 1 for env in reporting})
        for pair, infer in zip((thrifty, plain), infers, strict=True):
            pair.act(infer)
            pair.to_server(report(reporting, observe(versions, reporting), ended))
        held = (held - set(reporting)) | (set(reporting) - ended)
        versions.update({env: versions[env] + 1 for env in changed})
        held -= changed
        for infer, expected in seen:  # what was handed out stays as it was
            assert bits(infer) == expected


def test_what_is_reused_does_not_travel() -> None:
    rows = np.zeros((8, 64, 64, 3), np.uint8)
    pairs = Pair(), Pair()
    for pair, reuse in zip(pairs, (np.ones(8, bool), None), strict=True):
        everything = Observation({"cam": rows}, {"s": np.zeros((8, 7))}, [""] * 8)
        nothing = everything if reuse is None else everything.take([])
        for turn in range(20):
            infer = ask(range(8), nothing, reuse) if turn else ask(range(8), everything)
            pair.exchange(infer, report(range(8), everything))
    assert pairs[0].sent / pairs[1].sent == pytest.approx(0.525, abs=0.01)  # 21 observations of 40


def test_what_an_env_holds_can_be_asked_about_again_and_in_any_order() -> None:
    pair = Pair().fed([3, 1, 2])
    for envs in ([3, 1, 2], [2, 3, 1], [1], [3, 2]):
        got = pair.to_server(ask(envs, observe({}, []), [True] * len(envs)))
        assert bits(got) == bits(ask(envs, observe(dict.fromkeys(envs, 1), envs)))
        pair.act(got)
        pair.to_server(report(envs[:1], observe({envs[0]: 1}, envs[:1])))


def refused(pair: Pair, infer: Infer) -> RemoteProtocolError:
    """The server's error; the client's end would not have sent this."""
    with pytest.raises(RemoteProtocolError) as caught:
        pair.server.receive(encode(infer.to_wire()), 0)
    assert caught.value.close == RESYNC
    with pytest.raises(RemoteProtocolError):
        pair.server.receive(encode(ask([3], observe({}, [3])).to_wire()), 0)
    return caught.value


@pytest.mark.parametrize(
    "pair",
    [
        Pair,
        lambda: Pair().fed([1]),
        lambda: Pair().fed([3, 1], ended=[3]),
        lambda: Pair().fed([1, 3], ended=[3]),
        lambda: Pair().fed([3, 1]).fed([3, 1], ended=[3]),
        lambda: Pair().fed([3, 1]).fed([1]).fed([3], ended=[3]).fed([1]),
    ],
    ids=["nothing fed back", "another env fed back", "terminated", "truncated", "ended now", "ended then"],
)
@pytest.mark.parametrize("envs", [[3], [1, 3]])
def test_what_is_not_held_is_refused(pair: Callable[[], Pair], envs: list[int]) -> None:
    error = refused(pair(), ask(envs, observe({}, envs[:-1]), [env == 3 for env in envs]))
    assert error.clause == "10.1 reuse/held"
    assert error.detail == "infer.reuse: env 3 has no feedback on this connection that did not end its episode"


def test_what_does_not_fit_into_the_store_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson 5: rows of ever other envs must not add up without bound."""
    monkeypatch.setattr("plugrl_protocol.reuse._MOST_STORED", 100)
    together = Pair().fed([3, 1, 2]).to_server(ask([3, 1, 2], observe({}, []), [True] * 3))
    assert together.reuse is None  # the last feedback's rows are no part of the store
    assert refused(Pair().fed([3, 1, 2]), ask([2, 3], observe({}, []), [True] * 2)).clause == "10.1 reuse/held"


def test_an_observation_belongs_to_its_connection() -> None:
    Pair().fed([3])
    assert refused(Pair().fed([1]), ask([3], observe({}, []), [True])).clause == "10.1 reuse/held"


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize(
    ("states", "images", "detail"),
    [
        ({"long": (3, "f4")}, {}, "infer.data.states.long: expected float64[n,3] as in the feedback, got float32[n,3]"),
        ({"long": (4, "f8")}, {}, "infer.data.states.long: expected float64[n,3] as in the feedback, got float64[n,4]"),
        ({"long": None}, {}, "infer.data.states.long: expected float64[n,3] as in the feedback, got nothing"),
        ({"more": (1, "i8")}, {}, "infer.data.states.more: expected nothing as in the feedback, got int64[n,1]"),
        (
            {},
            {"cam": (2, 3, 3)},
            "infer.data.images.cam: expected uint8[n,2,2,3] as in the feedback, got uint8[n,2,3,3]",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: int, states: Any, images: Any, detail: str) -> None:
    fits: dict[str, Any] = {"long": (3, "f8"), "short": (1, "f2")}
    arrays = {key: np.zeros((rows, has[0]), has[1]) for key, has in (fits | states).items() if has}
    cameras = {key: np.zeros((rows, *has), "u1") for key, has in ({"cam": (2, 2, 3)} | images).items()}
    envs = [3, 7][: 1 + rows]
    error = refused(Pair().fed([3]), ask(envs, Observation(cameras, arrays, [""] * rows), [True, False][: 1 + rows]))
    assert (error.clause, error.detail) == ("10.1 reuse/shape", detail)


def test_a_client_may_go_over_to_another_layout_and_the_old_rows_are_gone() -> None:
    pair = Pair().fed([3, 1])
    narrow = Observation({}, {"s": np.ones((1, 2), np.float32)}, [""])
    pair.exchange(ask([3], observe({}, [3])), report([3], narrow))
    got = pair.to_server(ask([3], narrow.take([]), [True]))
    assert bits(got) == bits(ask([3], narrow))
    pair.act(got)
    pair.to_server(report([3], narrow))
    assert refused(pair, ask([1], narrow.take([]), [True])).clause == "10.1 reuse/held"


def test_the_client_is_held_back_from_what_the_server_would_refuse() -> None:
    pair = Pair().fed([3, 1, 2], ended=[1])
    for envs, reuse in (([1], [True]), ([3, 0], [True, True]), ([2, 1], [False, True])):
        with pytest.raises(LocalProtocolError, match=r"infer\.reuse: env [01] has no feedback") as caught:
            pair.client.send(ask(envs, observe({}, envs[: reuse.count(False)]), reuse), 0)
        assert caught.value.clause == "10.1 reuse/held"
    assert pair.client.turn is Turn.INFER
    pair.to_server(ask([3, 1, 2], observe({}, [1]), [True, False, True]))


class TestMemory:
    """What a client makes the server hold is bounded by what it has sent."""

    @pytest.mark.parametrize(("pad", "ended", "kept"), [(0, [], 1), (100_000, [], 0), (0, [3], 0)])
    def test_a_frame_is_kept_alive_only_if_most_of_it_is(self, pad: int, ended: list[int], kept: int) -> None:
        pair, image = Pair().fed([3, 1]), np.zeros((2, 128, 128, 3), np.uint8)
        pair.act(pair.to_server(ask([3, 1], observe({}, [3, 1]))))
        frame = pair.client.send(
            report([3, 1], Observation({"cam": image}, {}, ["", ""]), ended, pad=np.zeros((2, pad), np.uint8)), 0
        )
        before = sys.getrefcount(frame)
        pair.server.receive(frame, 0)
        assert (sys.getrefcount(frame) > before) == kept
        for _ in range(2):  # the first infer may be answered with its arrays
            pair.act(pair.to_server(ask([1, 3], Observation({"cam": image}, {}, ["", ""]), [False, False])))
            pair.to_server(report([1, 3], Observation({"cam": image}, {}, ["", ""])))
        assert sys.getrefcount(frame) == before

    def test_places_are_used_again(self) -> None:
        pair = Pair().fed(range(50))
        for turn in range(60):
            envs = [(turn * 7 + k) % 50 for k in range(turn % 5 + 1)]
            pair.act(pair.to_server(ask(envs, observe({}, []), [True] * len(envs))))
            pair.to_server(report(envs, observe({}, envs)))
        store = pair.server._held._store
        assert store is not None
        assert len(store._text) <= 100

    def test_a_long_text_costs_its_length_once(self) -> None:
        pair = Pair(max_frame=2**20)
        talker = Observation({}, {"s": np.zeros((1, 1))}, ["x" * 1000])
        others = Observation({}, {"s": np.zeros((400, 1))}, [""] * 400)
        silent = Observation({}, {"s": np.zeros((399, 1))}, [""] * 399)
        pair.exchange(ask([0], talker), report([0], talker))
        pair.exchange(ask(range(1, 401), others), report(range(1, 401), others))
        got = pair.to_server(ask(range(200), others.take([]), [True] * 200))
        assert got.observation.text.nbytes == 800_000
        pair.act(got)
        pair.to_server(report([0], talker))
        error = refused(pair, ask(range(400), silent, [True] + [False] * 399))
        assert error.detail == "infer.reuse: completed, it has 1600000 bytes, expected at most 1048576"

    @pytest.mark.parametrize("part", ["text", "images"])
    def test_what_never_fitted_in_a_frame_is_not_put_together(self, part: str) -> None:
        pair = Pair(max_frame=2**20)
        images = {"cam": np.zeros((1, 100, 100, 3), np.uint8)} if part == "images" else {}
        one = Observation(images, {"s": np.zeros((1, 1))}, ["x" * 9000 if part == "text" else ""])
        for env in range(40):
            pair.exchange(ask([env], one), report([env], one))
        error = refused(pair, ask(range(40), one.take([]), [True] * 40))
        assert error.clause == "10.1 reuse/held"
        assert "expected at most 1048576" in error.detail


class TestUnchanged:
    def one(self, *rows: float, text: Any = "", dtype: Any = "f8", key: str = "s") -> Observation:
        return Observation({}, {key: np.array(rows, dtype).reshape(-1, 1)}, np.array([text] * len(rows), np.str_))

    def test_it_compares_bit_by_bit(self) -> None:
        before, after = self.one(1, np.nan, 0.0, 4), self.one(1, np.nan, -0.0, 5)
        assert unchanged(before, after).tolist() == [True, True, False, False]

    def test_it_looks_at_everything(self) -> None:
        image = np.zeros((3, 2, 2, 3), np.uint8)
        before = Observation({"cam": image}, {"s": np.zeros((3, 2))}, ["a", "b", "c"])
        changed = image.copy()
        changed[0, 1, 0, 2] = 1
        after = Observation({"cam": changed}, {"s": np.zeros((3, 2))}, ["a", "b", "a longer text"])
        assert unchanged(before, after).tolist() == [False, True, False]

    @pytest.mark.parametrize("other", [{"dtype": "f4"}, {"key": "t"}])
    def test_another_layout_is_another_observation(self, other: Any) -> None:
        assert unchanged(self.one(1, 2), self.one(1, 2, **other)).tolist() == [False, False]

    def test_the_width_of_the_text_does_not_matter(self) -> None:
        assert unchanged(self.one(1, text=np.array("a", "<U9")), self.one(1, text="a")).tolist() == [True]

    def test_no_rows(self) -> None:
        assert unchanged(self.one(), self.one()).tolist() == []
