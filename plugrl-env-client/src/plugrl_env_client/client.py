"""One process of a client: builds the envs, the reconnect policy and the rollout from the options, and runs them."""

import dataclasses
import functools
import logging
import time
from collections.abc import Callable

from plugrl_protocol.errors import ProtocolError

from plugrl_env_client.envs.actions import ActionError
from plugrl_env_client.envs.base_env import BaseEnv, EnvError
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.reconnect import GaveUp, Reconnector, interruptible_sleep
from plugrl_env_client.options import MAX_ENVS, ClientOptions, Run, resolved_api_key
from plugrl_env_client.registration import make_env
from plugrl_env_client.reporting.tally import Snapshot, Tally
from plugrl_env_client.rollout import Outcome, Rollout, RolloutOptions

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Share:
    """What one process runs of the whole.

    Attributes:
        index: the process, from 0.
        first_env: how many envs the processes before it run.
        num_envs: how many it runs.
        num_steps: its part of --num-steps.
        num_episodes: its part of --num-episodes.
    """

    index: int
    first_env: int
    num_envs: int
    num_steps: int | None
    num_episodes: int | None


def shares(options: ClientOptions) -> list[Share]:
    """Divide envs, steps and episodes among `options.num_procs` processes, as evenly as they go."""
    envs = _split(options.num_envs, options.num_procs)
    steps = _split_or_none(options.num_steps, options.num_procs)
    episodes = _split_or_none(options.num_episodes, options.num_procs)
    return [
        Share(index, sum(envs[:index]), envs[index], steps[index], episodes[index])
        for index in range(options.num_procs)
    ]


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a client's run ended.

    Attributes:
        outcome: why it is over.
        snapshot: what it counted.
        error: for the user, where the outcome is FAILED.
    """

    outcome: Outcome
    snapshot: Snapshot
    error: str | None = None


def run_client(
    run: Run, share: Share, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float
) -> Finished:
    """Run one process's share to its end.

    Args:
        run: the whole.
        share: what this process runs of it.
        interrupts: set when the user wants the client to end.
        show: called with the counts every `interval` seconds.
        interval: in seconds.

    Raises:
        EnvError: the envs cannot be made. Later failures are returned, with what was counted until then.
    """
    options = run.options
    env = make_env(run.uid, run.env_config, share.num_envs)
    first = run.offset * MAX_ENVS + share.first_env  # clients with different offsets never share a seed or a number
    tally = Tally()
    try:
        reconnector = Reconnector(
            options.address,
            functools.partial(_open_link, options, interrupts),
            max_reconnects=options.max_reconnects,
            after_stop=options.reconnect_on_server_stop,
            sleep=interruptible_sleep(interrupts),
        )
        rollout = Rollout(
            env,
            reconnector,
            RolloutOptions(
                num_steps=share.num_steps,
                num_episodes=share.num_episodes,
                replan_steps=options.runner.replan_steps,
                max_episode_steps=options.runner.max_episode_steps,
                seed=run.seed + first,
                client=first,
                reuse_feedback_obs=options.reuse_feedback_obs,
            ),
            interrupts=interrupts,
            tally=tally,
            progress=_Every(interval, tally, show),
        )
        return Finished(rollout.run(), tally.snapshot())
    except (GaveUp, ActionError, EnvError, ProtocolError) as err:
        return Finished(Outcome.FAILED, tally.snapshot(), str(err))
    except Exception as err:  # an env's own failure: whoever wrote it needs the traceback
        if interrupts.requested:  # Ctrl-C also reaches the processes that an env may have
            return Finished(Outcome.INTERRUPTED, tally.snapshot())
        _logger.exception("%s failed", env.env_id)
        return Finished(Outcome.FAILED, tally.snapshot(), f"{env.env_id} failed: {type(err).__name__}: {err}")
    finally:
        _close(env)


def run_alone(run: Run, *, interrupts: Interrupts, show: Callable[[Snapshot], None], interval: float) -> Finished:
    """Run everything in this process: `run_client` with the whole for a share."""
    options = run.options
    whole = Share(0, 0, options.num_envs, options.num_steps, options.num_episodes)
    return run_client(run, whole, interrupts=interrupts, show=show, interval=interval)


class _Every:
    """Shows the counts, but not more often than every so many seconds."""

    def __init__(self, interval: float, tally: Tally, show: Callable[[Snapshot], None]) -> None:
        self._interval = interval
        self._tally = tally
        self._show = show
        self._due = time.monotonic() + interval

    def __call__(self, waiting: float) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._show(self._tally.snapshot(waiting=waiting))


def _close(env: BaseEnv) -> None:
    try:
        env.close()
    except Exception as err:  # the run's outcome is decided
        _logger.warning("%s did not close: %s: %s", env.env_id, type(err).__name__, err)


def _open_link(options: ClientOptions, interrupts: Interrupts) -> Link:
    return Link.open(
        options.address,
        connect_timeout=options.connect_timeout,
        action_timeout=options.action_timeout,
        max_frame=options.max_frame_mib * 2**20,
        api_key=resolved_api_key(options),
        interrupts=interrupts,
        spin=None if options.spin_us == "auto" else options.spin_us / 1e6,
    )


def _split(total: int, parts: int) -> list[int]:
    return [total // parts + (index < total % parts) for index in range(parts)]


def _split_or_none(total: int | None, parts: int) -> "list[int] | list[None]":
    return [None] * parts if total is None else _split(total, parts)
