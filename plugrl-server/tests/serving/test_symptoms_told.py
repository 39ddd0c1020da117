"""A mistake of an algorithm's author is told while the run goes on, once, and a sound algorithm is left in peace."""

import numpy as np
import pytest
from plugrl_server.training.symptoms import while_running as symptoms

EPISODE = {"episode": {"r": np.array([1.0]), "l": np.array([1]), "mask": np.array([True])}}


def warnings(run):
    run.runtime.advance(1.0)
    return [text for (text,) in run.events.named("warned")]


def play(run, exchanges, **feedback):
    client = run.client()
    for _ in range(exchanges):
        run.exchange(client, **feedback)
    return client


def test_should_learn_that_stays_true_is_told(simulate, fakes):
    learned = []
    algorithm = fakes.algorithm(should_learn=lambda: algorithm.buffered > 0 and len(learned) < 150)
    algorithm.learn_impl = lambda: (learned.append(1), (0, {}))[1]
    run = simulate(algorithm)
    play(run, 1)
    assert len(learned) == 150
    assert warnings(run) == [symptoms.LEARNS_ON]


def test_an_algorithm_that_is_inferred_from_while_it_learns_may_learn_on(simulate, fakes):
    learned = []
    algorithm = fakes.algorithm(should_learn=lambda: algorithm.buffered > 0 and len(learned) < 150)
    algorithm.concurrent = True
    algorithm.learn_impl = lambda: (learned.append(1), (0, {}))[1]
    run = simulate(algorithm)
    play(run, 1)
    assert len(learned) == 150
    assert warnings(run) == []


def test_a_learn_step_after_each_of_many_messages_is_no_symptom(simulate, fakes):
    algorithm = fakes.algorithm(fill=1, on_policy=False)
    run = simulate(algorithm)
    clients = [run.client() for _ in range(120)]
    for client in clients:
        client.say(client.infer())
    run.runtime.settle()
    for client in clients:
        client.say(client.feedback())
        run.runtime.settle()
    assert algorithm.learned == 120
    assert warnings(run) == []


def test_should_save_that_stays_true_is_told_and_the_run_goes_on(simulate, fakes):
    run = simulate(fakes.algorithm(should_save=lambda: True))
    client = play(run, 3)
    assert len(client.actions) == 3
    assert [checkpoint.step for checkpoint in run.source.saved] == [0, 1, 2, 3]
    assert warnings(run) == [symptoms.SAVES_ON]


def test_feedback_that_records_no_episode_is_told(simulate, fakes):
    run = simulate(fakes.algorithm(fill=2))
    play(run, 2, terminated=[True], info=EPISODE)
    assert warnings(run) == [symptoms.ROLLOUT_ZERO]


def test_a_client_that_sends_no_figures_is_not_the_algorithms_mistake(simulate, fakes):
    run = simulate(fakes.algorithm(fill=2))
    play(run, 6, terminated=[True])
    assert warnings(run) == []


def test_discarded_episodes_that_are_not_recorded_are_told(simulate, fakes):
    algorithm = fakes.algorithm(fill=1, discard_feedback=lambda **row: None)
    algorithm.feedback = lambda *, info, **row: (
        algorithm.record_episode_metrics(info["episode"]),
        ((1, "stored"), algorithm.global_step + 1, {}),
    )[1]
    run = simulate(algorithm)
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    run.source.trainer.version += 1
    client.say(client.feedback(terminated=[True], info=EPISODE))
    run.runtime.settle()
    assert warnings(run) == [symptoms.ROLLOUT_PART]


@pytest.mark.parametrize("on_policy", [True, False])
def test_a_sound_algorithm_is_left_in_peace(simulate, fakes, on_policy):
    algorithm = fakes.algorithm(fill=2, on_policy=on_policy)
    stored = algorithm.feedback

    def feedback(**row):
        algorithm.record_finished_episode(row["info"], row["next_terminated"], row["next_truncated"])
        return stored(**row)

    algorithm.feedback = feedback
    run = simulate(algorithm)
    play(run, 300, terminated=[True], info=EPISODE)
    assert algorithm.learned == 150
    assert warnings(run) == []
