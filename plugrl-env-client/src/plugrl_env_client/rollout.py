"""The loop of a client: environments, chunk plan and connection (SPEC 4.2).

On a connection infer and feedback alternate. Between an action and the next feedback the envs are stepped until one of
them has a chunk to report. Where an env can be reset at will, every env runs a chunk whenever envs are stepped. A
vector env that resets rows in its next step (`BaseEnv.resets_in_step`) makes two more cases, both in `_converse`:
nobody waits when an infer is due (step on), and somebody waits when a feedback is due that nobody owes (cut the running
chunks).
"""

import dataclasses
import enum
import logging
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from plugrl_protocol.closing import DONE, INTERNAL_ERROR, complain
from plugrl_protocol.connection import DECLARE, REUSE
from plugrl_protocol.messages import Action, Feedback, Infer
from plugrl_protocol.reuse import unchanged
from plugrl_protocol.spaces import Declaration

from plugrl_env_client.chunks import ChunkPlan
from plugrl_env_client.envs.actions import ActionError, action_rule
from plugrl_env_client.envs.base_env import BaseEnv, EnvError, Observation, Step
from plugrl_env_client.envs.returned import FirstLook
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupted, Interrupts
from plugrl_env_client.link.reconnect import Reconnector, ServerStopped
from plugrl_env_client.link.transport import Closed
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.pacing.pacer import Pacer
from plugrl_env_client.reporting.tally import ConnectionRecord, Tally

_logger = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """Why a rollout is over."""

    SERVER_STOPPED = "the server ended the run"
    LIMIT = "ran what was asked for"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class RolloutOptions:
    """What a rollout runs.

    Attributes:
        num_steps: env steps after which it ends; None: no limit.
        num_episodes: finished episodes after which it ends; None: no limit.
        replan_steps: steps of each chunk that are run; None: all.
        max_episode_steps: episodes are truncated at this length; None: only by the env.
        seed: env i is seeded with `seed + i`; None: not at all.
        client: this client's number in the declaration (SPEC 10.2).
        first_env: index of the first env over the whole run, for observers.
        reuse_feedback_obs: send an observation once where the server holds it (SPEC 10.1).
        on_stale: what a paced env is given from the action deadline on until the answer is there: its last action,
            zeros, or a call of `hold` and nothing more.
    """

    num_steps: int | None = None
    num_episodes: int | None = None
    replan_steps: int | None = None
    max_episode_steps: int | None = None
    seed: int | None = None
    client: int | None = None
    first_env: int = 0
    reuse_feedback_obs: bool = True
    on_stale: Literal["hold", "zero", "stop"] = "stop"


class Rollout:
    """Runs envs against a server until one of them has had enough.

    Args:
        env: the environments.
        reconnector: where connections come from.
        options: what to run.
        interrupts: set when the user wants the client to end.
        tally: counts everything; the caller reads it.
        progress: called after every exchange with the seconds waited on the open connection.
        observers: told of everything that happens.
        pacer: the clock of a single env in real time; None: steps follow one another at once.
    """

    def __init__(
        self,
        env: BaseEnv,
        reconnector: Reconnector,
        options: RolloutOptions,
        *,
        interrupts: Interrupts,
        tally: Tally,
        progress: Callable[[float], None],
        observers: Sequence[RolloutObserver] = (),
        pacer: Pacer | None = None,
    ) -> None:
        if pacer is not None and env.num_envs != 1:
            raise EnvError(f"{env.num_envs} envs share a connection: each env in real time needs its own")
        if options.max_episode_steps is not None and env.resets_in_step:
            raise EnvError(f"--runner.max-episode-steps: {env.env_id} resets itself and cannot be cut short")
        self._env = env
        self._reconnector = reconnector
        self._options = options
        self._most_steps = math.inf if options.num_steps is None else options.num_steps
        self._most_episodes = math.inf if options.num_episodes is None else options.num_episodes
        self._over = False  # all is done that was asked for
        self._interrupts = interrupts
        self._tally = tally
        self._progress = progress
        self._observers = tuple(observers)
        self._pacer = pacer
        tally.pacing = None if pacer is None else pacer.counts
        self._applied: np.ndarray | None = None  # the last action of the episode, where there is a pacer
        self._rule = action_rule(env.action_space, env.env_id)
        self._plan = ChunkPlan(
            env.num_envs,
            replan_steps=options.replan_steps,
            max_episode_steps=options.max_episode_steps,
            reward_threshold=env.reward_threshold,
        )
        self._observation: Observation
        self._infos: dict[str, np.ndarray] = {}
        self._reuses = False  # on this connection
        self._changed: np.ndarray | None = None  # b1[n]: shows something else than it reported last; None: nobody
        self._look = FirstLook(env)

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            GaveUp: there is no server to talk to.
            ActionError: the server's actions do not fit the env.
        """
        try:
            self._begin()
            while True:
                if self._serve(self._reconnector.connect()):
                    return Outcome.INTERRUPTED if self._interrupts.requested else Outcome.LIMIT
        except ServerStopped:
            return Outcome.SERVER_STOPPED
        except Interrupted:
            return Outcome.INTERRUPTED
        finally:
            for observer in self._observers:
                observer.closed()

    def _begin(self) -> None:
        self._observation = self._env.reset(self._options.seed)
        self._look.shown("reset", self._observation)
        if self._pacer is not None:
            self._pacer.rested()
        for observer in self._observers:
            observer.started(self._options.first_env, self._env.num_envs)
            observer.reset(np.arange(self._env.num_envs), self._observation)

    def _serve(self, link: Link) -> bool:
        """Use one connection until it ends; True when this side has ended it because all is done."""
        self._plan.reconnected()
        self._reuses = self._options.reuse_feedback_obs and REUSE in link.features and self._is_worth_reusing()
        self._changed = None
        if self._pacer is not None:
            self._pacer.connected()
        self._restart_ended(np.zeros(0, np.int64))
        self._tally.connection_open(link)
        ended = "closed by this client"
        try:
            self._converse(link)
            link.close(DONE)
        except Closed as err:
            ended = str(err)
            lost = err
        except Interrupted:
            link.close(DONE)
            raise
        except ActionError as err:
            ended = str(err)
            link.close(complain(ended))
            raise
        except BaseException:
            ended = "the client failed"
            link.close(INTERNAL_ERROR)
            raise
        else:
            return True
        finally:
            record = ConnectionRecord(link.feedback_rows, link.unconfirmed_rows, link.exchanges, ended)
            self._tally.connection_over(record, link.waited)
        self._env.hold()
        self._applied = None
        self._reconnector.lost(lost)
        self._tally.reconnects += 1
        return False

    def _converse(self, link: Link) -> None:
        plan = self._plan
        asking = True  # an infer is due; otherwise a feedback
        while not self._finished():
            if asking:
                waiting = plan.waiting()
                if len(waiting):
                    self._ask(link, waiting)
                    asking = False
                else:
                    self._step(link)
            elif len(owing := plan.owing()):
                self._report(link, owing)
                asking = True
            elif len(plan.waiting()):
                plan.cut()
            else:
                self._step(link)
        if not asking:
            plan.cut()  # what has been run is reported, whole chunk or not
            if len(owing := plan.owing()):
                self._report(link, owing)

    def _finished(self) -> bool:
        return self._over or self._interrupts.requested

    def _ask(self, link: Link, waiting: np.ndarray) -> None:
        first = link.exchanges == 0 and DECLARE in link.features
        reuse = self._reusable(link, waiting) if self._reuses else None
        infer = Infer(
            observation=self._rows(waiting) if reuse is None else self._rows_without(waiting, reuse),
            env_indices=waiting,
            step_ids=self._plan.step_ids(waiting),
            reuse=reuse,
            spaces=self._declaration() if first else None,
        )
        late = 0
        if self._pacer is None:
            action = link.infer(infer)
        else:
            action, late = self._ask_in_time(link, infer, self._pacer)
        chunk = self._rule.prepare(action.action)
        try:
            self._plan.accept(waiting, chunk, late)
        except ValueError as err:
            raise ActionError(str(err)) from None

    def _ask_in_time(self, link: Link, infer: Infer, pacer: Pacer) -> tuple[Action, int]:
        """As `Link.infer`, but the env is looked after while the answer is late; also, how many steps late it was."""
        link.ask(infer)
        pacer.asked()
        while (action := link.answer(pacer.patience())) is None:
            if not pacer.counts.fill_ins and not pacer.counts.stops:
                _logger.warning(
                    "%s: no action within %.3g s: %s", self._env.env_id, pacer.deadline, self._options.on_stale
                )
            if self._may_fill_in():
                self._fill_in(pacer)
            else:
                self._env.hold()
                pacer.stopped()
        return action, pacer.answered()

    def _may_fill_in(self) -> bool:
        """Not where nothing has moved the env yet, the episode or the run is over, or it is to be stopped anyway."""
        is_over = len(self._plan.owing()) or self._finished()
        return self._options.on_stale != "stop" and self._applied is not None and not is_over

    def _fill_in(self, pacer: Pacer) -> None:
        assert self._applied is not None  # noqa: S101 - just looked at
        actions = self._applied.copy() if self._options.on_stale == "hold" else np.zeros_like(self._applied)
        self._plan.stand_in()
        pacer.wait_for_fill_in()
        self._run(actions, np.zeros(0, np.int64))

    def _report(self, link: Link, owing: np.ndarray) -> None:
        step_ids, rewards, terminated, truncated, episode = self._plan.owed(owing)
        info: dict[str, object] = {}
        if self._infos:
            info = {key: rows[owing] for key, rows in self._infos.items() if key != "success"}
        if episode is not None:
            info["episode"] = episode
        feedback = Feedback(
            env_indices=owing,
            step_ids=step_ids,
            observation=self._rows(owing),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            info=info,
        )
        link.feedback(feedback)
        self._changed = None
        self._plan.sent(owing)
        self._reconnector.completed()
        self._progress(link.waited)
        for observer in self._observers:
            observer.exchanged(link.waited)
        if episode is not None:
            self._restart_ended(owing[self._reuses & link.reusable(owing)])

    def _step(self, link: Link) -> None:
        link.poll()
        resetting = self._plan.ended()
        actions = self._plan.next_actions()
        if self._pacer is not None and not len(resetting):
            self._pacer.wait()
            self._applied = actions
        self._run(actions, resetting)

    def _run(self, actions: np.ndarray, resetting: np.ndarray) -> None:
        """Give all envs an action, and take in what comes of it."""
        step = self._env.step(actions)
        if self._pacer is not None:
            self._pacer.stepped()
        self._look.stepped(step)
        self._observation, rewards, terminated, truncated, infos = step
        self._infos = dict(infos)
        ended = self._plan.record(rewards, terminated, truncated, self._infos.get("success"))
        self._tally.steps += self._env.num_envs - len(resetting)
        if ended is not None:
            self._tally.episodes_ended(*ended)
        self._over = self._tally.steps >= self._most_steps or self._tally.episodes >= self._most_episodes
        if len(resetting):
            self._tally.reset_in_step(resetting)
            self._rested(resetting)
        if self._observers:
            self._tell(actions, step, resetting)

    def _tell(self, actions: np.ndarray, step: Step, resetting: np.ndarray) -> None:
        told = step._replace(truncated=self._plan.truncated())
        for observer in self._observers:
            observer.stepped(actions, told, resetting)

    def _restart_ended(self, held: np.ndarray) -> None:
        """Begin the next episode where one has ended and was reported (or cannot be reported any more).

        The others show what they showed, but an env (a camera, say) may look again: the envs whose observation the
        server holds, int64[k] `held`, are compared.
        """
        if self._env.resets_in_step:
            return
        ended = self._plan.ended()
        if len(ended):
            before = self._observation.take(held)  # a copy, which the env cannot overwrite
            self._observation = self._env.reset_indices(ended)
            self._look.shown("reset_indices", self._observation)
            self._rested(ended)
            for observer in self._observers:
                observer.reset(ended, self._observation)
            if len(held):
                self._changed = np.zeros(self._env.num_envs, np.bool_)
                self._changed[held] = ~unchanged(before, self._observation.take(held))

    def _rested(self, indices: np.ndarray) -> None:
        """A new episode has begun in `indices`."""
        self._plan.restarted(indices)
        if self._pacer is not None:
            self._pacer.rested()
            self._applied = None

    def _is_worth_reusing(self) -> bool:
        seen = self._observation
        size = sum(array.nbytes for array in (*seen.images.values(), *seen.states.values(), seen.text))
        return size >= self._env.reuse_from_bytes

    def _reusable(self, link: Link, waiting: np.ndarray) -> np.ndarray:
        """b1[k]: whose observation the server holds. Nobody has been stepped between its feedback and this infer."""
        reusable = link.reusable(waiting)
        return reusable if self._changed is None else reusable & ~self._changed[waiting]

    def _rows(self, indices: np.ndarray) -> Observation:
        """The rows of some envs, int64[k] in ascending order. Neighbours' images are not copied."""
        if len(indices) == self._env.num_envs:
            return self._observation
        first, last = int(indices[0]), int(indices[-1])
        adjacent = last - first + 1 == len(indices)
        return self._observation.take(slice(first, last + 1) if adjacent else indices)

    def _rows_without(self, indices: np.ndarray, reuse: np.ndarray) -> Observation:
        """The rows of the others."""
        everyone = np.count_nonzero(reuse) == len(reuse)
        return self._observation.take(slice(0)) if everyone else self._rows(indices[~reuse])

    def _declaration(self) -> Declaration | None:
        if self._env.action_space is None:
            return None
        return Declaration(
            self._env.action_space,
            env=self._env.env_id,
            num_envs=self._env.num_envs,
            max_episode_steps=self._options.max_episode_steps or self._env.max_episode_steps,
            client=self._options.client,
        )
