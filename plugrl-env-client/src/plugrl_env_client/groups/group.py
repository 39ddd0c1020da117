"""One group: builds its envs, the reconnect policy and the rollout from the options, and runs them."""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from plugrl_protocol.errors import LocalProtocolError, ProtocolError

from plugrl_env_client.envs.actions import ActionError, takes_zeros
from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.groups.share import Share
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.reconnect import GaveUp, Reconnector, interruptible_sleep
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.options import MAX_ENVS, ClientOptions, Run, RunnerOptions, resolved_api_key
from plugrl_env_client.pacing.pacer import CaptureError, Pacer
from plugrl_env_client.recording.recorder_options import RecordingError
from plugrl_env_client.registration import make_env
from plugrl_env_client.reporting.tally import Snapshot, Tally
from plugrl_env_client.rollout import Outcome, Rollout, RolloutOptions

Observe: TypeAlias = Callable[[BaseEnv], Sequence[RolloutObserver]]

_logger = logging.getLogger(__name__)


def unobserved(env: BaseEnv) -> Sequence[RolloutObserver]:
    """No observers for these envs."""
    del env
    return ()


def unwatched(group: "Group") -> None:
    """Nobody looks at this group from outside."""
    del group


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a client's run ended, or that of one of its groups.

    Attributes:
        outcome: why it is over.
        snapshot: what it counted.
        error: for the user, where the outcome is FAILED.
        final: another try would end in the same way: a refusal, a mistake in the flags.
        usage: it was a mistake in the flags.
    """

    outcome: Outcome
    snapshot: Snapshot
    error: str | None = None
    final: bool = False
    usage: bool = False


class Vital(NamedTuple):
    """A sign of life.

    Attributes:
        steps: env steps until now.
        busy: whether the group is at work, as against waiting: for the server, for its turn, for an observer such as
            the recorder, or for nothing any more.
    """

    steps: int
    busy: bool


class Group:
    """The envs of one connection, made here and now.

    Args:
        run: the whole.
        share: what this group runs of it.
        interrupts: set when the user wants the client to end.
        observe: makes the observers of the group's rollout.

    Raises:
        EnvError: the envs cannot be made. Later failures are returned by `run`, with what was counted until then.
    """

    def __init__(self, run: Run, share: Share, interrupts: Interrupts, observe: Observe = unobserved) -> None:
        with _exits_are_failures(interrupts):
            self._env = make_env(run.uid, run.env_config, share.num_envs)
        self._run = run
        self._share = share
        self._interrupts = interrupts
        self._observe = observe
        self._observers: Sequence[RolloutObserver] = ()
        self._tally = Tally(share.num_envs)
        self._is_on = False

    def vital(self) -> Vital:
        """A sign of life; any thread may ask."""
        waits = self._interrupts.is_waiting or self.is_held_up
        return Vital(self._tally.steps, self._is_on and not waits)

    @property
    def is_held_up(self) -> bool:
        """Whether an observer, such as the recorder, lets it wait; any thread may ask."""
        return any(observer.is_waiting for observer in self._observers)

    def snapshot(self) -> Snapshot:
        """What has been counted until now."""
        return self._tally.snapshot()

    def run(self, exchanged: Callable[[], None]) -> Finished:
        """Run the share to its end.

        Args:
            exchanged: called after every exchange.
        """
        self._is_on = True
        rollout = None
        try:
            rollout = self._rollout(exchanged)
            with _exits_are_failures(self._interrupts):
                outcome = rollout.run()
            return Finished(outcome, self.snapshot())
        except (GaveUp, ActionError, EnvError, CaptureError, ProtocolError) as err:
            # Flags that do not go with the envs: the rollout cannot be made, or they cannot be recorded as was asked.
            usage = isinstance(err, EnvError if rollout is None else RecordingError)
            # What this side cannot send is the env's, and so is a time that cannot be.
            text = f"{self._env.env_id}: {err}" if isinstance(err, (LocalProtocolError, CaptureError)) else str(err)
            return Finished(Outcome.FAILED, self.snapshot(), text, final=True, usage=usage)
        except Exception as err:  # an env's own failure: whoever wrote it needs the traceback
            if self._interrupts.requested:  # Ctrl-C also reaches the processes that an env may have
                return Finished(Outcome.INTERRUPTED, self.snapshot())
            _logger.exception("%s failed", self._env.env_id)
            return Finished(Outcome.FAILED, self.snapshot(), f"{self._env.env_id} failed: {type(err).__name__}: {err}")
        finally:
            self.close()
            self._is_on = False

    def close(self) -> None:
        """Give back what the envs hold, where `run` has not done so."""
        try:
            self._env.close()
        except Exception as err:  # the run's outcome is decided
            _logger.warning("%s did not close: %s: %s", self._env.env_id, type(err).__name__, err)

    def _rollout(self, exchanged: Callable[[], None]) -> Rollout:
        run, share, options = self._run, self._share, self._run.options
        self._observers = self._observe(self._env)
        # Clients with different offsets never share a seed or a number.
        first = run.offset * MAX_ENVS + share.first_env
        reconnector = Reconnector(
            options.address,
            functools.partial(_open_link, options, self._interrupts),
            max_reconnects=options.max_reconnects,
            after_stop=options.reconnect_on_server_stop,
            sleep=interruptible_sleep(self._interrupts),
        )
        return Rollout(
            self._env,
            reconnector,
            RolloutOptions(
                num_steps=share.num_steps,
                num_episodes=share.num_episodes,
                replan_steps=options.runner.replan_steps,
                max_episode_steps=options.runner.max_episode_steps,
                seed=run.seed + first,
                client=first,
                first_env=share.first_env,
                reuse_feedback_obs=options.reuse_feedback_obs,
                on_stale=options.runner.on_stale or "stop",
            ),
            interrupts=self._interrupts,
            tally=self._tally,
            progress=lambda _: exchanged(),
            observers=self._observers,
            pacer=_pacer(options.runner, self._env),
        )


@contextlib.contextmanager
def _exits_are_failures(interrupts: Interrupts) -> Iterator[None]:
    """Only the user ends the process, by a second signal: an env's `sys.exit` would end its thread and tell nobody."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as err:
        if isinstance(err, SystemExit) and interrupts.requested:
            raise
        raise RuntimeError(f"it raised {err!r}") from err


def _pacer(runner: RunnerOptions, env: BaseEnv) -> Pacer | None:
    """The clock of a group whose env runs in real time."""
    if runner.fps is None:
        return None
    if runner.on_stale == "zero" and not takes_zeros(env.action_space):
        raise EnvError(f"--runner.on-stale zero: {env.env_id} takes {env.action_space}, where zeros are no standstill")
    return Pacer(
        runner.fps,
        runner.action_deadline,
        now=time.monotonic,
        sleep=time.sleep,
        captured_at=lambda: env.captured_at,
    )


def _open_link(options: ClientOptions, interrupts: Interrupts) -> Link:
    return Link.open(
        options.address,
        connect_timeout=options.connect_timeout,
        action_timeout=options.action_timeout,
        max_frame=options.max_frame_mib * 2**20,
        api_key=resolved_api_key(options),
        interrupts=interrupts,
        spin=_spin_seconds(options),
    )


def _spin_seconds(options: ClientOptions) -> float | None:
    """None: as long as that pays. A group that spins would keep the interpreter from the others, who have work."""
    if options.num_groups > 1:
        return 0.0
    return None if options.spin_us == "auto" else options.spin_us / 1e6
