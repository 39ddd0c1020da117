"""What the algorithm is asked to do, in which order, and in which thread; on a simulated clock."""

import logging

import numpy as np
import pytest
from plugrl_server.serving.worker import Pace

INTERNAL_ERROR = "1011 Internal server error."


def lanes(simulation):
    return [lane for lane, _, _ in simulation.runtime.jobs]


# Acting and recording ------------------------------------------------------------------------------------------------


def test_one_exchange_stores_one_transition(simulate, fakes):
    run = simulate(fakes.algorithm())
    client = run.client()
    run.exchange(client, (3,), [1.5], next_values=[2.5], rewards=[7.0])
    (row,) = run.algorithm.stored
    assert row["obs"]["states"]["obs"][:, 0].tolist() == [1.5]
    assert row["next_obs"]["states"]["obs"][:, 0].tolist() == [2.5]
    assert row["reward"] == 7.0
    assert row["runtime_state"]["ticket"].tolist() == [[0]]
    assert row["train_state"][0].tolist() == [[0]]
    assert row["prev_node"] == (-1, "")
    assert run.events.named("stepped") == [(1,)]


def test_flags_and_nodes_of_the_previous_frame_come_along(simulate, fakes):
    run = simulate(fakes.algorithm())
    client = run.client()
    run.exchange(client, (3,), terminated=[True])
    run.exchange(client, (3,))
    run.exchange(client, (3,))
    assert [row["terminated"] for row in run.algorithm.stored] == [False, True, False]
    assert [row["next_terminated"] for row in run.algorithm.stored] == [True, False, False]
    assert [row["prev_node"] for row in run.algorithm.stored] == [(-1, ""), (1, "stored"), (2, "stored")]


def test_requests_of_several_clients_share_a_batch_and_each_gets_its_own_rows(simulate, fakes):
    run = simulate(fakes.algorithm())
    one, two = run.client(), run.client()
    one.say(one.infer((0, 1)))
    two.say(two.infer((0,)))
    run.runtime.settle()
    assert run.algorithm.batches == [3]
    assert one.actions[0]["action"][0, :, 0].tolist() == [0, 1]
    assert two.actions[0]["action"][0, :, 0].tolist() == [2]
    assert run.scheduler.exchanges == 2


def test_whatever_arrives_during_an_inference_forms_the_next_batch(simulate, fakes):
    run = simulate(fakes.algorithm())
    clients = [run.client() for _ in range(3)]
    clients[0].say(clients[0].infer())
    run.runtime.run_soon()
    assert lanes(run) == ["act"]
    for client in clients[1:]:
        client.say(client.infer())
    run.runtime.run_soon()
    assert lanes(run) == ["act"]
    run.runtime.settle()
    assert run.algorithm.batches == [1, 2]


def test_a_minimum_batch_is_waited_for_and_then_not(simulate, fakes):
    run = simulate(fakes.algorithm(), mini_infer_batch_size=4, infer_wait_ms=50)
    one, two = run.client(), run.client()
    one.say(one.infer((0, 1)))
    two.say(two.infer((0, 1)))
    run.runtime.settle()
    assert run.algorithm.batches == [4]
    one.say(one.feedback((0, 1)))
    one.say(one.infer((0, 1)))
    run.runtime.settle()
    assert len(one.actions) == 1
    run.runtime.advance(0.051)
    run.runtime.settle()
    assert len(one.actions) == 2
    assert run.algorithm.batches == [4, 2]


def test_quick_calls_move_from_the_worker_to_the_loop(simulate, fakes, monkeypatch):
    monkeypatch.setattr(Pace, "LIMIT", 60.0)  # the machine that runs the tests may be busy
    run = simulate(fakes.algorithm())
    client = run.client()
    for _ in range(20):
        client.say(client.infer())
        assert lanes(run) == ["act"]
        run.runtime.settle()
        client.say(client.feedback())
        assert lanes(run) == ["act"]
        run.runtime.settle()
    client.say(client.infer())
    assert len(client.actions) == 21  # answered within the call that brought it


def test_an_observation_stays_what_its_client_sent_when_the_algorithm_batches(simulate, fakes):
    """Lesson 1: a message with too many rows shifts nobody else's."""
    run = simulate(fakes.algorithm())
    honest, liar = run.client(), run.client()
    liar.say(liar.infer((0,), data=liar.observation([666, 667])))
    honest.say(honest.infer((5,), [1.0]))
    run.runtime.settle()
    honest.say(honest.feedback((5,)))
    run.runtime.settle()
    assert liar.closed == "1001 plugrl-server-resync"
    assert [row["obs"]["states"]["obs"][0, 0] for row in run.algorithm.stored] == [1.0]


def test_feedback_is_recorded_in_arrival_order(simulate, fakes):
    run = simulate(fakes.algorithm())
    clients = [run.client() for _ in range(3)]
    for client in clients:
        client.say(client.infer((0, 1)))
    run.runtime.settle()
    for reward, client in enumerate((clients[2], clients[0], clients[1])):
        client.say(client.feedback((0, 1), rewards=[reward, reward + 0.5]))
    run.runtime.settle()
    assert [row["reward"] for row in run.algorithm.stored] == [0, 0.5, 1, 1.5, 2, 2.5]


def test_feedback_of_a_client_that_left_at_once_still_counts(simulate, fakes):
    run = simulate(fakes.algorithm())
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    client.say(client.feedback())
    client.leave()
    run.runtime.settle()
    assert len(run.algorithm.stored) == 1
    assert (run.accounting.total.received, run.accounting.total.stored) == (1, 1)


def test_nothing_is_answered_to_a_client_that_left_meanwhile(simulate, fakes):
    run = simulate(fakes.algorithm())
    client, other = run.client(), run.client()
    client.say(client.infer())
    other.say(other.infer())
    run.runtime.run_soon()
    client.leave()
    run.runtime.settle()
    assert client.actions == []
    assert len(other.actions) == 1


# What is never trained on --------------------------------------------------------------------------------------------


def test_feedback_without_a_step_state_is_named_and_discarded(simulate, fakes, caplog):
    """SPEC 7.6, lesson 4."""
    run = simulate(fakes.algorithm())
    client = run.client()
    run.exchange(client, (1,))
    client.say(client.infer((2,)))
    run.runtime.settle()
    with caplog.at_level(logging.WARNING):
        client.say(client.feedback((1, 2, 7), rewards=[8, 2, 8]))
        run.runtime.settle()
    assert [row["reward"] for row in run.algorithm.stored] == [1.0, 2.0]
    assert "Feedback for env 1 arrived with no step state" in caplog.text
    assert "Feedback for env 7 arrived with no step state" in caplog.text
    assert dict(run.accounting.total.discarded) == {"no_step_state": 2}
    assert len(run.algorithm.discarded) == 2


def test_a_reconnect_starts_from_nothing(simulate, fakes):
    """SPEC 7.6: not even the previous flags live on."""
    run = simulate(fakes.algorithm())
    old = run.client()
    run.exchange(old, (0,), terminated=[True])
    old.say(old.infer((0,)))
    run.runtime.settle()
    old.leave()
    new = run.client()
    new.say(new.infer((5,)))
    run.runtime.settle()
    new.say(new.feedback((0,)))
    run.runtime.settle()
    assert len(run.algorithm.stored) == 1
    run.exchange(new, (0,))
    assert run.algorithm.stored[1]["terminated"] is False
    assert run.algorithm.stored[1]["prev_node"] == (-1, "")


def test_rows_that_are_not_finite_are_named_and_discarded(simulate, fakes, caplog):
    """Lesson 3: the connection lives on."""
    run = simulate(fakes.algorithm())
    client = run.client()
    client.say(client.infer((1, 2, 3)))
    run.runtime.settle()
    client.say(client.feedback((1, 2, 3), [0.0, np.inf, 0.0], rewards=[np.nan, 1.0, 2.0]))
    run.runtime.settle()
    assert client.closed is None
    assert [row["reward"] for row in run.algorithm.stored] == [2.0]
    assert "feedback.data.rewards: not finite for env 1" in caplog.text
    assert "feedback.data.obs.states.obs: not finite for env 2" in caplog.text
    assert dict(run.accounting.total.discarded) == {"not_finite": 2}


def test_an_infer_that_is_not_finite_is_closed_for_resync(simulate, fakes, caplog):
    """Lesson 3."""
    run = simulate(fakes.algorithm())
    client = run.client()
    client.say(client.infer((4, 5), [0.0, np.nan]))
    assert client.closed == "1001 plugrl-server-resync"
    assert "infer.data.states.obs: not finite for env 5" in caplog.text


def test_actions_that_are_not_finite_end_the_run_unsent(simulate, fakes):
    """Lesson 3: nothing is worth saving after them."""
    run = simulate(fakes.algorithm(infer=lambda obs: (np.full((1, 1, 1), np.nan), {"ticket": np.zeros((1, 1))})))
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    assert client.actions == []
    ending = run.scheduler.ending
    assert (ending.exit_code, ending.save, str(ending.close)) == (1, False, INTERNAL_ERROR)
    assert "the policy's actions are not finite" in ending.error


# Learning ------------------------------------------------------------------------------------------------------------


def test_learning_happens_in_a_worker_and_nothing_is_inferred_meanwhile(simulate, fakes):
    run = simulate(fakes.algorithm(fill=1))
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    client.say(client.feedback())
    client.say(client.infer())
    while lanes(run) != ["learn"]:
        run.runtime.do_job()
    run.runtime.run_soon()
    assert lanes(run) == ["learn"]
    assert run.events.named("learning") == [(True,)]
    run.runtime.settle()
    assert run.events.named("learning") == [(True,), (False,)]
    assert run.events.named("learned")[0][1]["losses/fake"] == 1.0
    assert len(client.actions) == 2
    assert run.algorithm.learned == 1


def test_feedback_of_the_old_policy_is_discarded_after_a_learn_step(simulate, fakes):
    """algorithms.md, rule 3."""
    run = simulate(fakes.algorithm(fill=1))
    slow, quick = run.client(), run.client()
    slow.say(slow.infer())
    run.runtime.settle()
    run.exchange(quick, rewards=[1.0])
    assert run.algorithm.learned == 1
    slow.say(slow.feedback(rewards=[2.0]))
    run.runtime.settle()
    assert [row["reward"] for row in run.algorithm.stored] == [1.0]
    assert dict(run.accounting.total.discarded) == {"stale": 1}
    run.exchange(slow, rewards=[3.0])
    assert [row["reward"] for row in run.algorithm.stored] == [1.0, 3.0]
    assert run.algorithm.stored[1]["prev_node"] == (-1, "")


def test_an_off_policy_algorithm_gets_them_all(simulate, fakes):
    run = simulate(fakes.algorithm(fill=1, on_policy=False))
    slow, quick = run.client(), run.client()
    slow.say(slow.infer())
    run.runtime.settle()
    run.exchange(quick, rewards=[1.0])
    slow.say(slow.feedback(rewards=[2.0]))
    run.runtime.settle()
    assert [row["reward"] for row in run.algorithm.stored] == [1.0, 2.0]


def test_a_concurrent_algorithm_acts_while_it_learns(simulate, fakes):
    algorithm = fakes.algorithm(fill=1, on_policy=False)
    algorithm.concurrent = True
    run = simulate(algorithm)
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    client.say(client.feedback())
    run.runtime.do_job(lanes(run).index("act"))
    client.say(client.infer())
    assert sorted(lanes(run)) == ["act", "learn"]
    run.runtime.do_job(lanes(run).index("act"))
    assert lanes(run) == ["learn"]
    assert len(client.actions) == 2


def test_learning_again_at_once_when_asked_to(simulate, fakes):
    """The contract: still true after a learn step means one more, without inference in between."""
    algorithm = fakes.algorithm()
    algorithm.should_learn = lambda: len(algorithm.stored) > 0 and algorithm.learned < 3
    run = simulate(algorithm)
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    client.say(client.feedback())
    client.say(client.infer())
    run.runtime.settle()
    assert algorithm.learned == 3
    assert [step["server/policy_version"] for _, step in run.events.named("learned")] == [1, 2, 3]
    assert len(client.actions) == 2


def test_a_learn_step_longer_than_the_feedback_timeout_closes_nobody(simulate, fakes):
    """Lesson 8."""
    run = simulate(fakes.algorithm(fill=1))
    waiting = run.client(feedback=60.0, ping_interval=None)
    quick = run.client(ping_interval=None)
    waiting.say(waiting.infer())
    run.runtime.settle()
    quick.say(quick.infer())
    run.runtime.settle()
    run.runtime.advance(30)
    quick.say(quick.feedback())
    run.runtime.run_soon()
    while lanes(run) != ["learn"]:
        run.runtime.do_job()
    late = run.client(feedback=60.0, ping_interval=None)
    run.runtime.advance(600)
    assert waiting.closed is None
    run.runtime.settle()
    late.say(late.infer())
    run.runtime.settle()
    run.runtime.advance(29)
    assert waiting.closed is None
    run.runtime.advance(2)
    assert waiting.closed == "1001 Feedback timeout"
    assert late.closed is None


# Saving and stopping -------------------------------------------------------------------------------------------------


def test_should_save_is_asked_after_every_feedback(simulate, fakes):
    algorithm = fakes.algorithm()
    algorithm.should_save = lambda: len(algorithm.stored) == 2 and not run.source.saved
    run = simulate(algorithm)
    client = run.client()
    for _ in range(3):
        run.exchange(client)
    assert [checkpoint.step for checkpoint in run.source.saved] == [2]
    assert run.events.named("saved") == [("checkpoints/2",)]


def test_should_save_and_should_stop_are_asked_once_a_second_when_nothing_happens(simulate, fakes):
    asked = []
    algorithm = fakes.algorithm(should_save=lambda: asked.append("save"), should_stop=lambda: asked.append("stop"))
    run = simulate(algorithm)
    run.runtime.advance(5.5)
    assert asked.count("save") == asked.count("stop") == 5


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(simulate, fakes):
    algorithm = fakes.algorithm()
    algorithm.should_save = lambda: len(algorithm.stored) == 1
    run = simulate(algorithm)

    def full(checkpoint):
        raise OSError("no space left on device")

    run.source.trainer._save = full
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    client.say(client.feedback())
    run.runtime.do_job()
    algorithm.should_save = lambda: False
    run.runtime.settle()
    assert run.events.named("warned") == [("no checkpoint written: no space left on device",)]
    assert run.scheduler.ending is None


def test_the_run_ends_when_the_algorithm_says_so(simulate, fakes):
    run = simulate(fakes.algorithm(steps=2))
    client = run.client()
    run.exchange(client)
    assert run.scheduler.ending is None
    run.exchange(client)
    assert run.scheduler.ending.reason == "finished"
    assert run.scheduler.readiness == (False, "stopping")
    client.say(client.infer())
    run.runtime.settle()
    assert len(client.actions) == 2


def test_what_was_collected_is_learned_from_before_the_end(simulate, fakes):
    run = simulate(fakes.algorithm(fill=2, steps=2))
    client = run.client()
    run.exchange(client)
    run.exchange(client)
    assert run.algorithm.learned == 1
    assert run.scheduler.ending.reason == "finished"


def test_feedback_that_comes_too_late_is_accounted_for(simulate, fakes):
    run = simulate(fakes.algorithm(steps=1))
    clients = [run.client() for _ in range(3)]
    for client in clients:
        client.say(client.infer())
    run.runtime.settle()
    for client in clients:
        client.say(client.feedback())
    run.runtime.settle()
    assert str(run.accounting.total) == "received 3 = stored 1 + discarded 2 (after_close 2)"


@pytest.mark.parametrize(
    "call", ["note_client", "infer", "feedback", "learn_impl", "should_learn", "should_stop", "create_checkpoint"]
)
def test_a_bug_in_the_algorithm_ends_the_run_and_names_the_place(simulate, fakes, call):
    algorithm = fakes.algorithm(fill=1)
    algorithm.should_save = lambda: call == "create_checkpoint" and bool(algorithm.stored)

    def broken(*args, **options):
        raise KeyError("gone")

    setattr(algorithm, call, broken)
    run = simulate(algorithm)
    client = run.client()
    if call == "note_client":
        client.say(client.infer())
    else:
        run.exchange(client)
    ending = run.scheduler.ending
    place = call.removesuffix("_impl")
    assert ending.error.startswith(f"the algorithm's {place} failed: KeyError: 'gone' (test_scheduler.py, line")
    assert (ending.reason, ending.exit_code, str(ending.close)) == ("failed", 1, INTERNAL_ERROR)


def test_a_failure_of_the_program_around_it_ends_the_run_too(simulate, fakes):
    run = simulate(fakes.algorithm())

    def broken(step):
        raise OSError("disk full")

    run.events.stepped = broken
    run.exchange(run.client())
    assert run.scheduler.ending.error == "OSError: disk full"


def test_actions_that_no_message_can_carry_are_the_algorithms_fault(simulate, fakes):
    run = simulate(fakes.algorithm(infer=lambda obs: (np.array([[["a"]]]), {"ticket": np.zeros((1, 1))})))
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    assert "the algorithm's infer failed: LocalProtocolError" in run.scheduler.ending.error


# Deterministic runs --------------------------------------------------------------------------------------------------


def declaring(client, number):
    spaces = {
        "action": {
            "kind": "box",
            "shape": [3],
            "dtype": "<f4",
            "low": np.full(3, -9, "f4"),
            "high": np.full(3, 9, "f4"),
        }
    }
    return client.infer(spaces=spaces | ({} if number is None else {"client": number}))


def test_rounds_do_not_depend_on_who_is_quicker(simulate, fakes):
    def play(order):
        run = simulate(fakes.algorithm(), deterministic=3)
        clients = [run.client() for _ in range(3)]
        for number in order:
            clients[number].say(declaring(clients[number], number))
            run.runtime.settle()
        for step in range(3):
            for number in order[step:] + order[:step]:
                clients[number].say(clients[number].feedback(rewards=[number + 10 * step]))
                clients[number].say(clients[number].infer())
                run.runtime.settle()
        return [row["reward"] for row in run.algorithm.stored], run.algorithm.batches

    assert play([0, 1, 2]) == play([2, 0, 1]) == ([0, 1, 2, 10, 11, 12, 20, 21, 22], [3, 3, 3, 3])


def test_a_client_without_a_number_or_with_a_taken_one_is_rejected(simulate, fakes):
    run = simulate(fakes.algorithm(), deterministic=2)
    first, same, none = run.client(), run.client(), run.client()
    first.say(declaring(first, 4))
    same.say(declaring(same, 4))
    none.say(declaring(none, None))
    assert first.closed is None
    assert same.closed == "1008 plugrl-server-reject: client number 4 is taken; --deterministic needs different ones"
    assert none.closed.startswith("1008 plugrl-server-reject: --deterministic needs a client number")
