#!/usr/bin/env python3
"""A PlugRL server written from SPEC.md alone. It trains nothing; it answers as a server must.

    reference_server.py --port 8000 --state-dim 3        ends the run with a stop after 1000 exchanges

Its run takes any client whose observation has `states.obs` of width 3, and acts in Box(7,) with chunks of 4 steps; the
flags say otherwise. It needs msgpack and websockets. The codec is `raw_client.py`'s, its neighbour; everything else
reads from top to bottom: messages, sessions, run. `--bug NAME` breaks one rule on purpose.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import http
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raw_client import DECLARE, MAX_FRAME, REUSE, Array, MalformedError, Scalar, array, decode, encode, run_vectors
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

BUGS = {
    "no-metadata": "5.1: says nothing until the first infer",
    "env-major": "5.3: sends the action [n,H,...]",
    "no-env-ids": "4.3: leaves env_ids out",
    "wrong-horizon": "5.1: sends one step more than its metadata says",
    "lenient": "7.2: answers whatever it cannot read",
    "crash-on-info": "5.4: ends for everyone on an info that cannot be split",
    "plain-stop": "7.1: ends the run without the reason",
    "lenient-reuse": "10.1: answers a reuse of an observation that it does not hold",
}

STOP, RESYNC = (1001, "plugrl-server-stop"), (1001, "plugrl-server-resync")
FEEDBACK_TIMEOUT, INTERNAL_ERROR = (1001, "Feedback timeout"), (1011, "Internal server error.")
MAX_ENV_INDEX = 65_535

# ------------------------------------------------------------------------------------------- messages (SPEC 2 and 5)


def need(condition: bool, path: str, expected: str) -> None:
    """Refuse the message unless `condition` holds."""
    if not condition:
        raise MalformedError(f"expected {expected}", path)


def read_map(value: Any, path: str, keys: set[str] | None = None) -> dict[str, Any]:
    """A map with str keys; exactly `keys`, where they are given."""
    need(isinstance(value, dict) and all(isinstance(key, str) for key in value), path, "a map with str keys")
    found: dict[str, Any] = value
    need(keys is None or found.keys() == keys, path, f"exactly the keys {sorted(keys or ())}")
    return found


def read_array(value: Any, kinds: str, shape: tuple[int | None, ...], path: str) -> Array:
    """An array of one of the dtype `kinds`; None in `shape` stands for any length."""
    named = ",".join("*" if length is None else str(length) for length in shape)
    good = isinstance(value, Array) and value.dtype[1] in kinds and len(value.shape) == len(shape)
    need(good, path, f"{'/'.join(kinds)}[{named}]")
    fits = all(want in (None, got) for want, got in zip(shape, value.shape, strict=True))
    need(fits, path, f"{'/'.join(kinds)}[{named}]")
    found: Array = value
    return found


def read_env_indices(value: Any, path: str) -> list[int]:
    """Env indices (SPEC 4.4)."""
    indices = list(read_array(value, "iu", (None,), path).numbers())
    need(len(indices) > 0, path, "at least one env")
    need(all(0 <= index <= MAX_ENV_INDEX for index in indices), path, f"0 to {MAX_ENV_INDEX}")
    need(len(set(indices)) == len(indices), path, "no env twice")
    return indices


def read_observation(value: Any, rows: int, path: str) -> dict[str, Array]:
    """The states of an observation that is whole and has `rows` rows (SPEC 5.2)."""
    data = read_map(value, path, {"images", "states", "text"})
    for name, image in read_map(data["images"], f"{path}.images").items():
        found = read_array(image, "u", (rows, None, None, None), f"{path}.images.{name}")
        need(found.dtype[2:] == "1", f"{path}.images.{name}", "uint8")
    for name, state in read_map(data["states"], f"{path}.states").items():
        read_array(state, "iuf", (rows, None), f"{path}.states.{name}")
    text = data["text"]
    if isinstance(text, list):  # the Gap of SPEC 3.4
        need(all(isinstance(one, str) for one in text) and len(text) == rows, f"{path}.text", f"str[{rows}]")
    else:
        read_array(text, "U", (rows,), f"{path}.text")
    return dict(data["states"])


def read_floats(value: Any, rows: int, path: str) -> list[float]:
    """Float numbers, one a row."""
    return list(read_array(value, "f", (rows,), path).numbers())


def read_flags(value: Any, rows: int, path: str) -> list[bool]:
    """Bools, one a row."""
    return list(read_array(value, "b", (rows,), path).numbers())


def read_envelope(frame: bytes, kind: str) -> dict[str, Any]:
    """The message in `frame`, which must be a `kind`."""
    value = decode(frame)
    found = value.get("message_type") if isinstance(value, dict) else None
    need(found == kind, "message_type", f"{kind!r}, got {found!r:.40}")
    return dict(value)


@dataclass(frozen=True)
class Infer:
    """A request for chunks (SPEC 5.2): `states` holds only the rows that are not reused."""

    env_indices: list[int]
    reuse: list[bool] | None
    states: dict[str, Array]
    spaces: dict[str, Any] | None


def read_infer(frame: bytes) -> Infer:
    """The infer in `frame`."""
    message = read_envelope(frame, "infer")
    indices = read_env_indices(message.get("env_indices"), "infer.env_indices")
    rows = len(indices)
    read_array(message.get("step_ids"), "iu", (rows,), "infer.step_ids")
    reuse = None if message.get("reuse") is None else read_flags(message["reuse"], rows, "infer.reuse")
    states = read_observation(message.get("data"), rows - sum(reuse or ()), "infer.data")
    spaces = message.get("spaces")
    return Infer(indices, reuse, states, None if spaces is None else read_spaces(spaces))


@dataclass(frozen=True)
class Feedback:
    """How chunks went (SPEC 5.4)."""

    env_indices: list[int]
    rewards: list[float]
    done: list[bool]
    states: dict[str, Array]


class InfoError(MalformedError):
    """An info that cannot be split into rows."""


def read_feedback(frame: bytes) -> Feedback:
    """The feedback in `frame`."""
    message = read_envelope(frame, "feedback")
    indices = read_env_indices(message.get("env_indices"), "feedback.env_indices")
    rows = len(indices)
    read_array(message.get("step_ids"), "iu", (rows,), "feedback.step_ids")
    path = "feedback.data"
    data = read_map(message.get("data"), path, {"obs", "rewards", "terminated", "truncated", "info"})
    states = read_observation(data["obs"], rows, f"{path}.obs")
    rewards = read_floats(data["rewards"], rows, f"{path}.rewards")
    terminated = read_flags(data["terminated"], rows, f"{path}.terminated")
    truncated = read_flags(data["truncated"], rows, f"{path}.truncated")
    check_info(read_map(data["info"], f"{path}.info"), rows)
    done = [ended or cut for ended, cut in zip(terminated, truncated, strict=True)]
    return Feedback(indices, rewards, done, states)


def check_info(info: dict[str, Any], rows: int) -> None:
    """Refuse an info that cannot be split into `rows` rows, or whose episode is none (SPEC 5.4)."""
    if "episode" in info:
        episode = read_map(info["episode"], "feedback.data.info.episode")
        for key, kinds in {"r": "iuf", "l": "iu", "s": "b", "mask": "b"}.items():
            if isinstance(episode.get(key), Array):
                shape = (rows,) if episode[key].shape else ()
                read_array(episode[key], kinds, shape, f"feedback.data.info.episode.{key}")
            else:
                good = isinstance(episode.get(key), (type(None), bool, int, float, Scalar))
                need(good, f"feedback.data.info.episode.{key}", f"{kinds}[{rows}]")
    leaves = [leaf for value in info.values() for leaf in (value.values() if isinstance(value, dict) else [value])]
    split = any(isinstance(leaf, Array) and leaf.shape[:1] == (rows,) for leaf in leaves)
    if info and rows > 1 and not split:
        raise InfoError(f"expected an array of {rows} rows to split it by", "feedback.data.info")


def read_spaces(value: Any) -> dict[str, Any]:
    """The declared action space, as `{"kind", "shape"}` (SPEC 10.2)."""
    spaces = read_map(value, "infer.spaces")
    need(isinstance(spaces.get("env", ""), str), "infer.spaces.env", "a str")
    for name, least in (("num_envs", 1), ("max_episode_steps", 1), ("client", None)):
        number = spaces.get(name, 1)
        need(type(number) is int and (least is None or number >= least), f"infer.spaces.{name}", "an int")
    action = read_map(spaces.get("action"), "infer.spaces.action")
    kind, path = action.get("kind"), "infer.spaces.action"
    if kind == "box":
        shape: Any = action.get("shape")
        good = isinstance(shape, list) and all(type(length) is int and length >= 0 for length in shape)
        need(good, f"{path}.shape", "a list of ints")
        for bound in ("low", "high"):
            read_array(action.get(bound), "iuf", tuple(shape), f"{path}.{bound}")
        return {"kind": kind, "shape": shape}
    if kind == "multi_discrete":
        nvec: Any = action.get("nvec")
        need(isinstance(nvec, Array) and nvec.dtype[1] in "iu", f"{path}.nvec", "an int array")
        return {"kind": kind, "shape": list(nvec.shape)}
    need(kind in ("discrete", "multi_binary"), f"{path}.kind", "box, discrete, multi_discrete or multi_binary")
    need(type(action.get("n")) is int and action["n"] > 0, f"{path}.n", "an int of 1 or more")
    return {"kind": kind, "shape": [action["n"]] if kind == "multi_binary" else []}


# ---------------------------------------------------------------------------------------------------------- sessions


class RejectError(Exception):
    """This run cannot serve the client (SPEC 10.2)."""


class Session:
    """One connection: the exchange, and what the server remembers of the client's envs (SPEC 7.6)."""

    def __init__(self, run: Run, socket: ServerConnection) -> None:
        self.run, self.socket = run, socket
        self.holders: set[int] = set()  # envs that hold an action
        self.held: set[int] = set()  # envs whose last feedback observation may stand in for the next one
        self.first = True

    async def converse(self) -> None:
        """Serve the client until it leaves."""
        options = self.run.options
        if options.bug != "no-metadata":
            await self.socket.send(encode({"message_type": "metadata", "data": self.run.metadata()}))
        try:
            while True:
                await self._exchange()
        except TimeoutError:
            await self._end(FEEDBACK_TIMEOUT, f"no feedback within {options.feedback_timeout:g} s")
        except RejectError as error:
            await self._end((1008, f"plugrl-server-reject: {error}"), str(error))
        except InfoError as error:
            crash = options.bug == "crash-on-info"
            await self._end(INTERNAL_ERROR if crash else RESYNC, str(error))
            if crash:
                self.run.crash()
        except MalformedError as error:
            await self._end(RESYNC, str(error))

    async def _end(self, close: tuple[int, str], why: str) -> None:
        code, reason = close
        say(f"closing {self.socket.remote_address} with {code}: {why}")
        await self.socket.close(code, reason.encode()[:123].decode(errors="ignore"))

    async def _exchange(self) -> None:
        """infer, action, feedback (SPEC 4.2)."""
        infer = await self._read(read_infer, None)
        self._judge(infer)
        await self.socket.send(self.run.action(infer.env_indices))
        self.holders.update(infer.env_indices)
        self._record(await self._read(read_feedback, self.run.options.feedback_timeout))

    async def _read(self, read: Callable[[bytes], Any], seconds: float | None) -> Any:
        """The next message as `read` reads it."""
        while True:
            receiving = asyncio.ensure_future(self.socket.recv())
            await asyncio.wait({receiving}, timeout=seconds)
            if not receiving.done():
                receiving.cancel()
                raise TimeoutError
            frame = receiving.result()
            try:
                if isinstance(frame, str):
                    raise MalformedError("expected a binary frame, got text")
                return read(frame)
            except InfoError:
                raise
            except MalformedError:
                if self.run.options.bug != "lenient":
                    raise
                await self.socket.send(self.run.action(sorted(self.holders) or [0]))

    def _judge(self, infer: Infer) -> None:
        """Refuse what can be read and yet not be served."""
        fault = self.run.disagreement(infer, self.first)
        if fault is not None:
            raise RejectError(fault) if self.first and infer.spaces is not None else MalformedError(fault)
        self.first = False
        for name, state in infer.states.items():
            need(all(map(math.isfinite, state.numbers())), f"infer.data.states.{name}", "finite numbers")
        pairs = zip(infer.env_indices, infer.reuse or [False] * len(infer.env_indices), strict=True)
        missing = [index for index, reused in pairs if reused and index not in self.held]
        if missing and self.run.options.bug != "lenient-reuse":
            raise MalformedError(f"no observation is held for env {missing[0]}", "infer.reuse")

    def _record(self, feedback: Feedback) -> None:
        """A trainer would store the transitions here."""
        fault = self.run.misfit(feedback.states)
        if fault is not None:
            raise MalformedError(fault)
        for index, done in zip(feedback.env_indices, feedback.done, strict=True):
            if index not in self.holders:
                say(f"Feedback for env {index} arrived with no step state")
            self.holders.discard(index)
            (self.held.discard if done else self.held.add)(index)
        self.run.count_exchange()


# --------------------------------------------------------------------------------------------------------------- run


class Run:
    """What all connections share: the action space, the number of exchanges, the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.exchanges = 0
        self.ending = asyncio.Event()
        self.close, self.status = STOP if options.bug != "plain-stop" else (1001, ""), 0
        self.sessions: set[ServerConnection] = set()

    def metadata(self) -> dict[str, Any]:
        """What clients are told (SPEC 5.1)."""
        return {
            "protocol_version": 1,
            "server": "plugrl-reference-server",
            "action_horizon": self.options.horizon,
            "action_dim": self.options.action_dim,
            "features": [REUSE, DECLARE],
        }

    def action(self, env_ids: list[int]) -> bytes:
        """The answer for these envs: slow waves, time-major [H,n,d] (SPEC 5.3)."""
        steps = self.options.horizon + (self.options.bug == "wrong-horizon")
        rows, width = len(env_ids), self.options.action_dim
        values = [math.sin(0.1 * (self.exchanges + step) + row) for step in range(steps) for row in range(rows * width)]
        shape = (rows, steps, width) if self.options.bug == "env-major" else (steps, rows, width)
        data = {} if self.options.bug == "no-env-ids" else {"env_ids": array("<i8", env_ids)}
        return encode({"message_type": "action", "data": {**data, "action": array("<f4", values, *shape)}})

    def disagreement(self, infer: Infer, first: bool) -> str | None:
        """Why the client that sent `infer` does not fit this run, if it does not (SPEC 10.2)."""
        mine = self.options.action_dim
        if first and infer.spaces is not None:
            kind, shape = infer.spaces["kind"], infer.spaces["shape"]
            if kind != "box":
                return f"action space {kind}{shape}, this run has box[{mine}]"
            if math.prod(shape) != mine:
                return f"action_dim {math.prod(shape)}, this run has {mine}"
        return self.misfit(infer.states)

    def misfit(self, states: dict[str, Array]) -> str | None:
        """Why a policy that reads the run's state key could not read `states`, if it could not."""
        key, width = self.options.state_key, self.options.state_dim
        if key not in states:
            return f"states {sorted(states)}, this run reads {key!r}"
        got = states[key].shape[1]
        return None if got == width else f"states.{key} of width {got}, this run has {width}"

    def count_exchange(self) -> None:
        """One more; the run may be over with it."""
        self.exchanges += 1
        if self.exchanges == self.options.exchanges:
            self.ending.set()

    def crash(self) -> None:
        """End as a server does that does not expect its own exceptions."""
        self.close, self.status = INTERNAL_ERROR, 1
        self.ending.set()

    async def serve(self) -> int:
        """Serve until the run is over; the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.ending.set)
        host, port = self.options.host, self.options.port
        async with serve(
            self._session,
            host,
            port,
            process_request=self._http,
            compression=None,
            max_size=MAX_FRAME,  # not the library's 1 MiB (SPEC 1.1)
            ping_interval=20,
            ping_timeout=60,
        ) as server:
            say(f"listening on {host} port {server.sockets[0].getsockname()[1]}")
            await self.ending.wait()
            await asyncio.gather(*(socket.close(*self.close) for socket in self.sessions))
        say(f"{self.exchanges} exchanges, closed with {self.close[0]} {self.close[1]}")
        return self.status

    async def _session(self, socket: ServerConnection) -> None:
        self.sessions.add(socket)
        try:
            await Session(self, socket).converse()
        except ConnectionClosed:
            pass  # the client has left, or the run is over
        finally:
            self.sessions.discard(socket)

    def _http(self, socket: ServerConnection, request: Request) -> Response | None:
        """The health checks and the API key (SPEC 1.2, 1.3)."""
        if request.path in ("/healthz", "/readyz"):
            return socket.respond(http.HTTPStatus.OK, "ok\n")
        key = self.options.api_key
        if key is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Api-Key {key}".encode()):
                return socket.respond(http.HTTPStatus.UNAUTHORIZED, "expected Authorization: Api-Key KEY\n")
        return None


def say(text: str) -> None:
    """A line for the user."""
    print(f"reference_server: {text}", file=sys.stderr, flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    bugs = "\n".join(f"  {name:14} {what}" for name, what in BUGS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"bugs:\n{bugs}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one, which is printed")
    parser.add_argument("--state-key", default="obs", help="name of the state that the run reads")
    parser.add_argument("--state-dim", type=int, default=3, help="its width")
    parser.add_argument("--action-dim", type=int, default=7)
    parser.add_argument("--horizon", type=int, default=4, help="steps in a chunk")
    parser.add_argument("--exchanges", type=int, default=1000, help="exchanges until the stop; 0: without end")
    parser.add_argument("--feedback-timeout", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--api-key", default=os.environ.get("PLUGRL_API_KEY"), help="default: PLUGRL_API_KEY")
    parser.add_argument("--vectors", type=Path, metavar="DIR", help="grade the vectors in DIR and exit")
    parser.add_argument("--bug", choices=BUGS, metavar="NAME", help="break one rule, as listed below")
    options = parser.parse_args(arguments)
    for name in ("state_dim", "action_dim", "horizon"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: expected at least 1")
    if not 0 <= options.port <= 65_535:
        parser.error(f"--port {options.port}: expected 0 to 65535")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Serve one run; the exit status."""
    options = parse(arguments)
    if options.vectors is not None:
        return run_vectors(options.vectors, {"infer": read_infer, "feedback": read_feedback})

    async def run() -> int:
        return await Run(options).serve()

    try:
        return asyncio.run(run())
    except OSError as error:
        say(f"cannot listen on {options.host} port {options.port}: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
