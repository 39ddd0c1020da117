"""An evaluation acts, counts whole episodes, and changes nothing."""

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE, Client, FeedbackRows
from plugrl_server.algorithm.evaluation.bootstrap import estimate
from plugrl_server.algorithm.evaluation.evaluation import Evaluation
from plugrl_server.algorithm.evaluation.evaluation_config import EvaluationConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy

OBS = {"images": {}, "states": {"s": np.array([[1.0, 2.0, 3.0]])}, "text": np.array([""])}


def evaluation(policy=None, **changes):
    return Evaluation(EvaluationConfig(**changes), policy or DummyPolicy(DummyPolicyConfig()))


def rows(infos, *, done=None, reward=1.0, client=None, envs=None):
    m = len(infos)
    flags = np.zeros(m, bool)
    ended = np.array([bool(info) for info in infos]) if done is None else np.array(done)
    return FeedbackRows(
        {}, None, None, flags, flags, {}, np.full(m, reward, "f4"), infos, ended, flags, [NO_NODE] * m,
        client, None if envs is None else np.array(envs),
    )  # fmt: skip


def ended(reward, length=10, success=False, **more):
    return {"episode": {"r": reward, "l": length, "s": success}, **more}


def test_the_weights_of_the_path_act_without_noise_and_stay_as_they_are(trained):
    policy = GaussianPolicy(trained.config)
    measuring = evaluation(policy, policy_checkpoint_path=trained.folder)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    expected = trained.policies[10]
    expected.deterministic = True
    for _ in range(3):
        action, _ = measuring.infer(OBS)
        np.testing.assert_array_equal(action, expected.get_action_and_runtime_state(OBS)[0])
        measuring.feedback_rows(rows([ended(1.0)]))
    assert not measuring.should_learn()
    assert measuring.learn()[0] == 3
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_noise_is_a_switch(trained):
    noisy = evaluation(GaussianPolicy(trained.config), policy_checkpoint_path=trained.folder, deterministic=False)
    assert len({noisy.infer(OBS)[0].tobytes() for _ in range(5)}) == 5


def test_it_stops_when_every_environment_has_done_its_share():
    measuring, client = evaluation(num_episodes=3), Client((4, 9))
    measuring.note_client(client)
    message = rows([ended(1.0), ended(2.0)], client=client, envs=[4, 9])
    assert measuring.feedback_rows(message) == 2
    assert message.nodes == [(1, "eval"), (2, "eval")]
    assert measuring.feedback_rows(rows([ended(5.0)], client=client, envs=[9])) == 1
    assert not measuring.should_stop()
    measuring.feedback_rows(rows([{}], client=client, envs=[4]))
    measuring.feedback_rows(rows([ended(3.0)], client=client, envs=[4]))
    assert measuring.should_stop()
    assert [episode.reward for episode in measuring.ledger.counted()] == [1, 2, 3]
    assert measuring.global_step == 5


def test_it_stops_at_global_steps_too():
    measuring = evaluation(global_steps=2)
    measuring.feedback_rows(rows([{}]))
    assert not measuring.should_stop()
    measuring.feedback_rows(rows([{}]))
    assert measuring.should_stop()


def test_the_figures_are_those_of_the_client_and_the_bootstrap_s():
    measuring = evaluation(num_episodes=4, bootstrap_seed=3)
    returns, lengths = [1.0, 2.0, 4.0, -3.5], [5, 6, 7, 8]
    for reward, length in zip(returns, lengths, strict=True):
        measuring.feedback_rows(rows([ended(np.float32(reward), np.int64(length), np.bool_(reward > 0), seed=11)]))
    results = measuring.results()
    assert results.columns == ("index", "client", "env", "return", "length", "success", "seed")
    assert list(results.episodes) == [
        (0, 0, 0, 1.0, 5, True, 11),
        (1, 0, 0, 2.0, 6, True, 11),
        (2, 0, 0, 4.0, 7, True, 11),
        (3, 0, 0, -3.5, 8, False, 11),
    ]
    expected = estimate(np.array(returns), seed=3)
    assert results.metrics["eval/episodes"] == 4
    assert results.metrics["eval/return"] == expected.mean == 0.875
    assert results.metrics["eval/return_std"] == expected.std
    assert (results.metrics["eval/return_low"], results.metrics["eval/return_high"]) == (expected.low, expected.high)
    assert (results.metrics["eval/length"], results.metrics["eval/success"]) == (6.5, 0.75)
    assert results.lines[0].startswith("evaluated without noise: 4 episodes of 1 environment, mean")
    assert f"0.88 +- {expected.std:.2f}  [{expected.low:.2f}, {expected.high:.2f}]" in results.lines[1]
    assert len(results.lines) == 4


@pytest.mark.parametrize(
    ("sent", "seed"),
    [(2**60 + 1, 2**60 + 1), (np.array([7]), 7), (np.nan, None), (np.inf, None), ("7", None), ([1, [2]], None)],
)
def test_a_seed_is_taken_as_it_is_or_not_at_all(sent, seed):
    """Lesson 2: nothing checks what clients put there, so nothing they put there may end the run."""
    measuring = evaluation(num_episodes=1)
    measuring.feedback_rows(rows([ended(1.0, seed=sent)]))
    assert measuring.ledger.episodes[0].seed == seed


def test_a_client_that_sends_no_figures_has_its_rewards_added_up():
    measuring = evaluation()
    for end in (False, False, True, True):
        measuring.feedback_rows(rows([{}, {}], done=[end, False], reward=2.0, envs=[0, 1]))
    first, second = measuring.ledger.episodes
    assert (first.reward, first.length, first.success) == (6, None, None)
    assert second.reward == 2
    results = measuring.results()
    assert "eval/return" in results.metrics
    assert "eval/length" not in results.metrics


@pytest.mark.parametrize("info", [{"episode": {"r": 1.0, "mask": False}}, {"episode": {"r": np.nan}}])
def test_parts_of_episodes_and_returns_that_are_no_number_do_not_count(info):
    measuring = evaluation(num_episodes=1)
    measuring.feedback_rows(rows([info]))
    assert measuring.ledger.episodes == []
    assert measuring.results() is None


def test_too_few_episodes_are_said_to_be():
    measuring = evaluation(num_episodes=3)
    measuring.feedback_rows(rows([ended(1.0)]))
    assert "only 1 of 3 episodes" in measuring.results().lines[-1]


def test_the_contract_s_own_call_counts_too():
    measuring = evaluation(num_episodes=1)
    node, step, log = measuring.feedback(**rows([ended(2.0)]).row(0))
    assert (node, step, log) == ((1, "eval"), 1, {})
    assert measuring.should_stop()
    assert measuring.episodes.metrics() == {"rollout/reward": 2, "rollout/length": 10, "rollout/success": 0}


def test_it_saves_now_and_then_and_goes_on_from_there(trained):
    first = evaluation(GaussianPolicy(trained.config), policy_checkpoint_path=trained.folder, save_interval=2)
    first.feedback_rows(rows([ended(1.0)]))
    assert not first.should_save()
    first.feedback_rows(rows([ended(2.0)]))
    assert first.should_save()
    checkpoint = first.create_checkpoint()
    assert not first.should_save()

    second = evaluation(
        GaussianPolicy(trained.config), policy_checkpoint_path=trained.folder, save_interval=2, num_episodes=3
    )
    second.load_checkpoint(checkpoint.copy())
    assert (second.global_step, second.should_save(), second.should_stop()) == (2, False, False)
    client = Client((0,))
    second.note_client(client)
    second.feedback_rows(rows([ended(3.0)], client=client, envs=[0]))
    assert second.should_stop()
    assert [episode.reward for episode in second.ledger.counted()] == [1, 2, 3]
    assert [episode.client for episode in second.ledger.counted()] == [0, 0, 1]


def test_a_policy_that_brings_its_weights_is_not_copied_into_checkpoints():
    assert evaluation().create_checkpoint().model is None
    evaluation().load_checkpoint(evaluation().create_checkpoint())
