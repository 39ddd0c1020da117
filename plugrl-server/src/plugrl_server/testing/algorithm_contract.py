"""The contract of an algorithm as a pytest class."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.testing.comparing import difference, expect, layout, row_counts, skip
from plugrl_server.testing.contract import Contract, act_alike, changed, weights
from plugrl_server.testing.rehearsal import Rehearsal
from plugrl_server.training.accounting import Discard

FIGURES = {"r": 7.0, "l": 3, "s": True, "mask": True}


class AlgorithmContract(Contract):
    """Inherit it, say how your algorithm is made, and run pytest.

        class TestMine(AlgorithmContract):
            def make_algorithm(self):
                return MyAlgorithm(MyConfig(buffer_size=32, save_interval=2), self.make_policy())

    Choose small sizes and a run length beyond `exchanges`. Every method is one clause and a test of its own.

    Attributes:
        learns: Whether it ever learns.
        exchanges: Exchanges within which it must have learned.
        learns_in_a_row: Most learn steps that it may ask for without an inference between them.
        resumes_mid_iteration: Whether frames stored since the last learn step are part of a checkpoint. Where they
            are not, its cadence is checked from a checkpoint right after a learn step.
        learns_by_frames: Whether the frames alone say when it learns. False where a learner of its own answers by the
            clock: then only its saves are compared.
        untrained: Names that parameters of the policy start with which learning must not change.
        stops_at_global_steps: Whether `global_steps` decides when a run is over.
    """

    learns: ClassVar[bool] = True
    exchanges: ClassVar[int] = 1000
    learns_in_a_row: ClassVar[int] = 8
    resumes_mid_iteration: ClassVar[bool] = True
    learns_by_frames: ClassVar[bool] = True
    untrained: ClassVar[tuple[str, ...]] = ()
    stops_at_global_steps: ClassVar[bool] = True

    def make_algorithm(self) -> BaseAlgorithm:
        """Return the algorithm on a policy, without its optimizers built. Called often, and after seeding."""
        raise TypeError(f"{type(self).__name__} lacks make_algorithm(self): return your algorithm on make_policy().")

    # Calls -------------------------------------------------------------------------------------------------------

    def test_learn_is_left_to_the_base_class(self) -> None:
        """`learn_impl` is the method to write; `learn` adds `rollout/*` around it."""
        expect(
            type(self.build()).learn is BaseAlgorithm.learn,
            "learn() is overridden: write learn_impl(), which learn() calls to add rollout/* to its metrics.",
        )

    def test_buffers_are_sized_by_example_train_state(self) -> None:
        """`example_train_state(n)` has the structure, row shapes and dtypes of what `derive_train_state` returns."""
        algorithm = self.build()
        for n in (1, self.num_envs):
            obs = self.make_env(n).obs
            example = algorithm.example_train_state(n)
            real = algorithm.derive_train_state(algorithm.infer(obs)[1])
            for name, state in (("example_train_state", example), ("derive_train_state", real)):
                wrong = {path: rows for path, rows in row_counts(state).items() if rows != n}
                expect(not wrong, f"{name}: every leaf needs {n} rows, one an environment; found {wrong}.")
            found = difference(layout(example), layout(real))
            expect(found is None, f"example_train_state({n}) is not like derive_train_state(...): {found}")

    # Episodes ----------------------------------------------------------------------------------------------------

    def test_feedback_records_episodes(self) -> None:
        """The figures of an episode that ends in a stored frame reach `rollout/*`."""
        with self.rehearsal(num_envs=1, length=1) as run:
            run.algorithm.feedback_rows(run.rows(run.ask()))
            told = run.algorithm.build_train_info(run.trainer.global_step, {})
        expect(
            "rollout/reward" in told and "rollout/length" in told,
            'feedback() does not call record_episode_metrics(info["episode"]) when a frame ends an episode: '
            "rollout/* stays 0.",
        )

    def test_discarded_episodes_are_recorded(self) -> None:
        """The figures of an episode that ends in a discarded frame reach `rollout/*` as well."""
        algorithm = self.build()
        algorithm.discard_feedback(info={"episode": FIGURES}, next_terminated=False, next_truncated=True)
        told = algorithm.build_train_info(0, {})
        expect(
            told.get("rollout/reward") == FIGURES["r"],
            "discard_feedback() is overridden without super().discard_feedback(...): these episodes are missing "
            "from rollout/*.",
        )

    def test_a_learn_step_ends_the_count_of_episodes(self) -> None:
        """`post_learn` clears the episodes that a learn step has reported."""
        algorithm = self.build()
        algorithm.discard_feedback(info={"episode": FIGURES}, next_terminated=True, next_truncated=False)
        algorithm.post_learn()
        expect(
            "rollout/reward" not in algorithm.build_train_info(0, {}),
            "post_learn() is overridden without super().post_learn(): episodes are reported again and again.",
        )

    # Learning ----------------------------------------------------------------------------------------------------

    def test_should_learn_falls_after_learning(self) -> None:
        """After some learn steps `should_learn()` is false, or the server would never infer again."""
        with self.learned() as run:
            run.until(lambda: len(run.learned_at) >= 3, self.exchanges)
        expect(
            run.longest_row <= self.learns_in_a_row,
            f"should_learn() is still true after {run.longest_row} learn steps: learn_impl() or post_learn() must "
            f"clear the buffer, or advance the counter that should_learn() depends on.",
        )

    def test_metrics_are_finite_numbers(self) -> None:
        """Every metric of a learn step is a finite number under a name with a slash."""
        with self.learned() as run:
            for name, value in run.metrics[-1].items():
                expect(np.isfinite(float(value)), f"the metric {name} is {value}.")
                expect("/" in name, f"the metric {name} has no group: losses/{name}, for one.")

    def test_acting_and_recording_change_no_weights(self) -> None:
        """`infer` and `feedback` leave the policy's weights alone."""
        with self.rehearsal() as run:
            before = weights(run.algorithm.policy)
            for _ in range(3):
                run.answer(run.ask())
            moved = changed(before, weights(run.algorithm.policy))
        expect(not moved, f"infer() or feedback() changed {sorted(moved)}: only a learn step may.")

    def test_learning_changes_what_it_should(self) -> None:
        """Learn steps change every parameter that wants a gradient, and none of those named `untrained`."""
        with self.rehearsal() as run:
            policy = run.algorithm.policy
            before = weights(policy)
            self._learn(run, 3)
            moved = changed(before, weights(policy))
            wanted = {name for name, weight in getattr(policy, "named_parameters", dict)() if weight.requires_grad}
        kept = {name for name in before if name.startswith(self.untrained)} if self.untrained else set()
        expect(not moved & kept, f"learning changed {sorted(moved & kept)}, which the contract names as untrained.")
        still = wanted - moved - kept
        expect(
            not still,
            f"learning never changes {sorted(still)}: no gradient reaches them. Should none: `untrained`.",
        )

    # Frames ------------------------------------------------------------------------------------------------------

    def test_a_message_is_stored_like_its_rows(self) -> None:
        """On-policy, no row is taken once `should_learn()` is true, however many rows a message has."""
        if not (self.learns and self._on_policy()):
            skip("only an on-policy algorithm that learns leaves rows")
        steps = []
        for num_envs in (1, self.num_envs):
            with self.rehearsal(num_envs=num_envs) as run:
                self._until_it_wants_to_learn(run)
                steps.append(run.trainer.global_step)
        expect(
            steps[0] == steps[1],
            f"a learn step begins at step {steps[0]} with one environment and at {steps[1]} with {self.num_envs}: "
            f"feedback_rows() takes rows after should_learn() has become true.",
        )

    def test_frames_are_stored_by_the_rule(self) -> None:
        """On-policy, frames of an older policy are discarded; off-policy, every frame is stored. Steps count them."""
        with self.rehearsal() as run:
            for _ in range(2):
                before = run.trainer.global_step
                discarded = run.answer(run.ask())
                stored = self.num_envs - sum(discarded.values())
                expect(
                    run.trainer.global_step - before == stored,
                    f"{stored} frames were stored and global_step rose by {run.trainer.global_step - before}.",
                )
                run.turn()
            asked, before = run.ask(), run.trainer.global_step
            run.trainer.version += 1
            discarded = run.answer(asked)
        if self._on_policy():
            expect(discarded == {Discard.STALE: self.num_envs}, f"frames of an older policy were stored: {discarded}.")
            expect(run.trainer.global_step == before, "global_step counts frames that were discarded.")
        else:
            expect(not discarded, f"an off-policy algorithm must take every frame; feedback_rows() left {discarded}.")

    def test_it_stops_at_global_steps(self) -> None:
        """`should_stop()` is false before `global_steps` frames, and true once they are learned from."""
        if not self.stops_at_global_steps:
            skip("global_steps does not end its runs")
        with self.rehearsal() as run:
            self._until_it_wants_to_learn(run)
            end = max(run.trainer.global_step, self.num_envs) + self.num_envs
            run.algorithm.config.global_steps = end
            early = run.trainer.should_stop()
            run.turn()
            run.until(lambda: run.trainer.global_step >= end and not run.trainer.should_learn(), self.exchanges)
            reached, stops = run.trainer.global_step, run.trainer.should_stop()
        expect(not early, f"should_stop() is true before --algo.global-steps {end}.")
        expect(stops, f"should_stop() is false at step {reached} of --algo.global-steps {end}.")

    # Saving ------------------------------------------------------------------------------------------------------

    def test_should_save_falls_after_a_checkpoint(self) -> None:
        """`create_checkpoint` makes `should_save()` false, or there would be a checkpoint on every turn."""
        with self.rehearsal() as run:
            run.until(lambda: len(run.saved_at) >= 2 or run.saved_in_vain, min(100, self.exchanges))
        expect(
            not run.saved_in_vain,
            "should_save() is still true after create_checkpoint(), which must note what has been saved.",
        )

    def test_a_checkpoint_restores_the_policy(self) -> None:
        """Saved, written, read and loaded into a new algorithm: the same weights, and the same actions."""
        with self._some_way_on() as run:
            other = self.restored(run.through_disk())
            moved = changed(weights(run.algorithm.policy), weights(other.policy))
            expect(not moved, f"load_checkpoint() does not restore the policy's {sorted(moved)}.")
            actions = act_alike(run.algorithm, other, self.make_env(seed=9).obs)
            found = difference(*actions)
        expect(found is None, f"a restored algorithm acts otherwise: {found}. Something that acts is not in its state.")

    def test_a_checkpoint_restores_every_part(self) -> None:
        """A checkpoint taken right after a load holds what the loaded one held: step, optimizer, meta."""
        with self._some_way_on() as run:
            loaded = run.through_disk()
            again = self.restored(loaded).create_checkpoint()
            found = difference(_parts(loaded), _parts(again))
        expect(found is None, f"load_checkpoint() does not restore what create_checkpoint() saved: {found}.")

    def test_a_resumed_run_keeps_its_cadence(self) -> None:
        """A resumed run learns and saves at the steps at which the uninterrupted one does.

        Episodes last one chunk here: what environments were in the middle of is no part of a checkpoint.
        """
        with self._some_way_on(mid_iteration=self.resumes_mid_iteration, length=1) as run:
            checkpoint = run.through_disk()
            resumed = Rehearsal(self.restored(checkpoint), self.make_env(length=1), run.manager.folder / "resumed")
            seen = len(run.learned_at), len(run.saved_at)
            goal, start = seen[0] + (4 if self.learns else 0), run.exchanges
            run.until(lambda: len(run.learned_at) >= goal and run.exchanges >= start + 30, self.exchanges)
            for _ in range(run.exchanges - start):
                resumed.exchange()
        for verb, there, here in (
            ("learns", run.learned_at[seen[0] :], resumed.learned_at),
            ("saves", run.saved_at[seen[1] :], resumed.saved_at),
        ):
            expect(
                there == here or (verb == "learns" and not self.learns_by_frames),
                f"resumed at step {checkpoint.step} it {verb} at {here}, uninterrupted at {there}: keep every counter "
                f"in Checkpoint.meta and restore it in load_checkpoint().",
            )

    # How the checks run ------------------------------------------------------------------------------------------

    def build(self, seed: int = 0) -> BaseAlgorithm:
        """Return a new algorithm as the server builds it: seeded, made, its optimizers built."""
        self.seed(seed)
        algorithm = self.make_algorithm()
        algorithm.init_optimizers()
        return algorithm

    def restored(self, checkpoint: Checkpoint) -> BaseAlgorithm:
        """Return a new algorithm of another seed with a checkpoint loaded."""
        algorithm = self.build(seed=1)
        algorithm.load_checkpoint(checkpoint)
        return algorithm

    @contextmanager
    def rehearsal(self, num_envs: int | None = None, length: int | None = None) -> Iterator[Rehearsal]:
        """A run of a new algorithm, with a folder for its checkpoints."""
        with tempfile.TemporaryDirectory() as folder:
            yield Rehearsal(self.build(), self.make_env(num_envs, length=length), Path(folder))

    @contextmanager
    def learned(self) -> Iterator[Rehearsal]:
        """A run that has learned once; the check is left out for an algorithm that never does."""
        with self.rehearsal() as run:
            self._learn(run, 1)
            yield run

    def _learn(self, run: Rehearsal, times: int) -> None:
        if not self.learns:
            skip("it never learns")
        expect(
            run.until(lambda: len(run.learned_at) >= times, self.exchanges),
            f"{len(run.learned_at)} learn steps within {self.exchanges} exchanges of {self.num_envs} frames: choose "
            f"smaller sizes, raise `exchanges`, or set `learns = False`.",
        )

    @contextmanager
    def _some_way_on(self, *, mid_iteration: bool = True, length: int | None = None) -> Iterator[Rehearsal]:
        """A run after two learn steps, by default half way to the third."""
        with self.rehearsal(length=length) as run:
            if self.learns:
                self._learn(run, 1)
                start = run.exchanges
                self._learn(run, 2)
                between = run.exchanges - start
            else:
                between = 15
            for _ in range(max(1, between // 2) if mid_iteration else 0):
                run.exchange()
            yield run

    def _until_it_wants_to_learn(self, run: Rehearsal) -> None:
        for _ in range(self.exchanges if self.learns else 10):
            if run.trainer.should_learn():
                return
            run.answer(run.ask())

    def _on_policy(self) -> bool:
        return bool(self.build().on_policy)


def _parts(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"step": checkpoint.step, "optimizer": checkpoint.optimizer, "meta": checkpoint.meta}
