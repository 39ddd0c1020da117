"""Our own two ends: `plugrl-run-server` as a user starts it, and the env client's link without an environment."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import measure
import numpy as np
import payloads
from payloads import Shape
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration

READY = r"listening on 127\.0\.0\.1 port (\d+)"
ENDLESS = "1000000000"
MAX_FRAME = 256 * 2**20


class Server(measure.Process):
    """A training server that never learns, with its run folder in a temporary place; `flags` are added."""

    def __init__(self, policy: str, shape: Shape, *, spin_us: float | None = None, flags: Sequence[str] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory()
        command = [str(Path(sys.executable).with_name("plugrl-run-server")), policy, "default", "dummy", "default"]
        command += ["--port", "0", "--algo.global-steps", ENDLESS, "--policy.device", "cpu", "--exp-name", "bench"]
        command += [
            "--checkpoint-base-dir",
            self._folder.name,
            "--spin-us",
            "auto" if spin_us is None else str(spin_us),
            *flags,
        ]
        super().__init__(command, name=f"plugrl-run-server {policy} ({shape.name})")

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._folder.cleanup()


class LinkClient:
    """Drives the env client's own link as its rollout does.

    As there, an env step brings one new observation; it goes out in the feedback and again in the next infer. Every
    message is made anew, so that its validation is in the figure.
    """

    def __init__(self, port: int, shape: Shape, *, spin_us: float | None = None) -> None:
        self._link = Link.open(
            Address("127.0.0.1", port),
            connect_timeout=10,
            action_timeout=None,
            max_frame=MAX_FRAME,
            api_key=None,
            interrupts=Interrupts(),
            spin=None if spin_us is None else spin_us / 1e6,
        )
        self._observation = shape.observation()
        feedback = payloads.feedback(shape)
        self._envs, self._step_ids = feedback["env_indices"], feedback["step_ids"]
        self._outcome = {name: feedback["data"][name] for name in ("rewards", "terminated", "truncated", "info")}
        self._spaces: Declaration | None = declaration() if "declare-spaces" in self._link.features else None
        self._seen = Observation(**self._observation)

    def exchange(self) -> None:
        """Send an infer, receive its action, send the feedback."""
        self._link.infer(Infer(self._seen, self._envs, self._step_ids, spaces=self._spaces))
        self._spaces = None
        self._seen = Observation(**self._observation)
        self._link.feedback(Feedback(self._envs, self._step_ids, self._seen, **self._outcome))

    def close(self) -> None:
        """Close with 1000."""
        self._link.close()


def declaration() -> Declaration:
    """A box of as many numbers as `dummy-policy` acts with anyway."""
    ones = np.ones(payloads.ACTION_DIM, dtype=np.float32)
    return Declaration(BoxSpace((payloads.ACTION_DIM,), np.dtype(np.float32), -ones, ones))
