"""SAC as the server runs it: acting, storing, updates that are due, reports, resuming."""

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE
from plugrl_server.algorithm.sac import sac
from plugrl_server.algorithm.sac.sac import SAC
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig


def same(one, other):
    """Whether two trees hold the same bytes."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return one == other


def state(algorithm):
    """All that a checkpoint holds, and the frames slot by slot: in which rows their observations lie is free."""
    checkpoint = algorithm.create_checkpoint()
    replay = checkpoint.meta["learner"].pop("replay")
    frames = algorithm.learner.replay.frames(np.arange(len(algorithm.learner.replay)))
    return [checkpoint.step, checkpoint.model, checkpoint.optimizer, checkpoint.meta, replay["added"], frames]


# Acting and storing ----------------------------------------------------------------------------------------------


def test_actions_are_uniform_until_learning_starts(make_sac, make_bandit):
    algorithm, bandit = make_sac(learning_starts=10), make_bandit(2000)
    with torch.no_grad():
        algorithm.policy.actor[-1].bias.copy_(torch.tensor([3.0, -9.0]))  # the policy itself would always choose 0.99
    samples = [algorithm.infer(bandit.observation())[1]["sample"]]
    algorithm.global_step = 10
    samples.append(algorithm.infer(bandit.observation())[1]["sample"])
    np.testing.assert_allclose(np.quantile(samples[0], [0.25, 0.5, 0.75]), [-0.5, 0, 0.5], atol=0.08)
    assert samples[1].min() > 0.9


def test_feedback_and_the_vectorised_hook_store_the_same(make_sac, make_bandit):
    one, many = make_sac(), make_sac()
    first, second = make_bandit(), make_bandit()
    for _ in range(3):
        rows = first.rows(one)
        nodes = [one.feedback(**rows.row(i))[0] for i in range(len(rows))]
        rows = second.rows(many)
        assert many.feedback_rows(rows) == 8
        assert rows.nodes == nodes
    assert one.global_step == many.global_step == 24
    assert one.episodes.metrics() == many.episodes.metrics()
    assert same(state(one), state(many))


def test_train_states_size_the_buffer(make_sac):
    assert make_sac(policy={"action_horizon": 3}).example_train_state(5).shape == (5, 3)


def test_every_frame_is_stored_while_updates_are_due(make_sac, make_bandit):
    algorithm, bandit = make_sac(learning_starts=8), make_bandit()
    for _ in range(5):
        assert algorithm.feedback_rows(bandit.rows(algorithm)) == 8
    assert not algorithm.on_policy
    assert (algorithm.global_step, len(algorithm.learner.replay)) == (40, 40)


def test_it_refuses_another_policy():
    with pytest.raises(ConfigError, match="sac needs sac-policy, got DummyPolicy"):
        SAC(SACConfig(), DummyPolicy(DummyPolicyConfig()))


# Updates that are due --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clients", "per_step"), [((8,), 1.0), ((1, 1, 6), 1.0), ((3, 5), 0.3), ((8,), 2.5)])
def test_updates_per_step_do_not_depend_on_the_number_of_clients(make_sac, make_bandit, run, clients, per_step):
    algorithm = make_sac(learning_starts=16, batch_size=4, updates_per_step=per_step)
    for _ in range(10):
        for n in clients:
            run(algorithm, make_bandit(n), 1)
            due = (max(0, algorithm.global_step - 16)) * per_step
            assert algorithm.learner.updates == pytest.approx(due, abs=1)
    assert algorithm.global_step == 80
    assert algorithm.learner.updates == pytest.approx(64 * per_step, abs=1)


def test_no_update_before_learning_starts(make_sac, make_bandit, run):
    algorithm = make_sac(learning_starts=20)
    run(algorithm, make_bandit(4), 5)
    assert algorithm.learner.updates == 0
    run(algorithm, make_bandit(1), 1)
    assert algorithm.learner.updates == 1


def test_a_learn_step_takes_so_many_updates_at_most(make_sac, make_bandit, monkeypatch):
    monkeypatch.setattr(sac, "MAX_UPDATES", 5)
    algorithm = make_sac(learning_starts=4)
    algorithm.feedback_rows(make_bandit(16).rows(algorithm))
    taken = []
    while algorithm.should_learn():
        before = algorithm.learner.updates
        algorithm.learn()
        taken.append(algorithm.learner.updates - before)
    assert taken == [5, 5, 2]


def test_a_run_stops_after_the_updates_of_its_last_frames(make_sac, make_bandit, run):
    algorithm = make_sac(global_steps=72)
    run(algorithm, make_bandit(), 8)
    algorithm.feedback_rows(make_bandit().rows(algorithm))
    assert algorithm.global_step == 72
    assert not algorithm.should_stop()
    algorithm.learn()
    assert algorithm.should_stop()


# Reports ---------------------------------------------------------------------------------------------------------


def test_one_report_stands_for_many_updates_and_loses_no_episode(make_sac, make_bandit, run):
    algorithm = make_sac(report_interval=50, global_steps=64 + 120)
    reports = run(algorithm, make_bandit(), 23)
    assert [report["losses/updates"] for report in reports] == [56, 112, 120]
    names = {"critic_loss", "q_value", "actor_loss", "entropy", "alpha", "alpha_loss", "updates"}
    for report in reports:
        assert {name.removeprefix("losses/") for name in report if name.startswith("losses/")} == names
        assert {"rollout/reward", "rollout/length"} <= report.keys()
        assert all(type(value) is float and np.isfinite(value) for value in report.values())
    assert algorithm.episodes.recorded == algorithm.global_step == 184


def test_metrics_are_means_since_the_last_report(make_sac, make_bandit, run):
    often = run(make_sac(report_interval=8, policy_frequency=1), make_bandit(), 14)
    seldom = run(make_sac(report_interval=48, policy_frequency=1), make_bandit(), 14)
    for name in ("losses/critic_loss", "losses/alpha"):
        assert seldom[0][name] == pytest.approx(np.mean([report[name] for report in often]), rel=1e-4)


# Learning --------------------------------------------------------------------------------------------------------


def test_it_learns_a_bandit_and_holds_it(make_sac, make_bandit, run):
    algorithm, bandit = make_sac(learning_rate=3e-3, critic_learning_rate=3e-3, tau=0.02), make_bandit()
    before = bandit.cost(algorithm)
    run(algorithm, bandit, 8)
    costs = []
    for _ in range(6):
        run(algorithm, bandit, 12)
        costs.append(bandit.cost(algorithm))
    assert before > 0.15
    assert max(costs[2:]) < 0.02
    assert algorithm.policy.log_alpha.exp() < 1


@pytest.mark.parametrize("policy_frequency", [1, 2])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_mini_batch_of_one_has_no_nan(make_sac, make_bandit, run, policy_frequency, normalize):
    """From the very first frame on, when the normaliser has seen one and knows no spread."""
    algorithm = make_sac(
        policy={"normalize_observations": normalize},
        batch_size=1,
        learning_starts=1,
        report_interval=1,
        policy_frequency=policy_frequency,
    )
    before = [parameter.detach().clone() for parameter in algorithm.policy.parameters()]
    reports = run(algorithm, make_bandit(1), 12)
    assert len(reports) == algorithm.learner.updates == 11
    assert all(np.isfinite(value) for metrics in reports for value in metrics.values())
    assert all(torch.isfinite(parameter).all() for parameter in algorithm.policy.parameters())
    moved = [not torch.equal(old, new) for old, new in zip(before, algorithm.policy.parameters(), strict=True)]
    assert all(moved)


# State -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"dtype": "bfloat16", "normalize_observations": True}])
def test_rule_9_a_resumed_run_is_byte_identical(make_sac, make_bandit, run, tmp_path, policy):
    """Saved in the middle of everything: a ring that came round, an odd update, metrics that are not reported."""
    sizes = {"buffer_size": 100, "updates_per_step": 0.45, "report_interval": 20, "policy": policy}
    first, bandit = make_sac(**sizes), make_bandit(9)
    run(first, bandit, 21)
    first.feedback_rows(bandit.rows(first))
    assert first.should_learn()
    assert first.learner.updates == 56
    assert first.reported_updates < 56
    manager = CheckpointManager(tmp_path)
    manager.save(first.create_checkpoint())

    second, other = make_sac(seed=9, **sizes), make_bandit(9)
    second.load_checkpoint(manager.load())
    other.round = bandit.round
    assert same(state(first), state(second))
    reports = [run(algorithm, contexts, 15) for algorithm, contexts in ((first, bandit), (second, other))]
    assert reports[0]
    assert [metrics["losses/critic_loss"] for metrics in reports[0]] == [m["losses/critic_loss"] for m in reports[1]]
    assert same(state(first), state(second))


def test_saving_goes_by_frames_and_turns_itself_off(make_sac, make_bandit, run):
    algorithm, bandit = make_sac(save_interval=20), make_bandit()
    run(algorithm, bandit, 2)
    assert not algorithm.should_save()
    run(algorithm, bandit, 1)
    assert algorithm.should_save()
    checkpoint = algorithm.create_checkpoint()
    assert checkpoint.step == 24
    assert not algorithm.should_save()
    resumed = make_sac(save_interval=20)
    resumed.load_checkpoint(checkpoint)
    assert not resumed.should_save()
    run(resumed, bandit, 3)
    assert resumed.should_save()


def test_a_checkpoint_of_another_size_is_refused(make_sac, make_bandit, run):
    algorithm = make_sac()
    run(algorithm, make_bandit(), 10)
    checkpoint = algorithm.create_checkpoint()
    with pytest.raises(CheckpointError, match=r"does not fit this configuration: [\s\S]*size mismatch"):
        make_sac(policy={"hidden_sizes": (16, 16)}).load_checkpoint(checkpoint)
    with pytest.raises(CheckpointError, match="80 frames of 80 were stored; this buffer holds 40"):
        make_sac(buffer_size=40).load_checkpoint(checkpoint)
    del checkpoint.meta["due"]
    with pytest.raises(CheckpointError, match="has no 'due': another algorithm, or another version"):
        make_sac().load_checkpoint(checkpoint)


def test_an_unbroken_episode_is_stored_once(make_sac, make_bandit):
    """Nodes chain frames: what follows a frame is what its successor acted on."""
    algorithm, bandit = make_sac(), make_bandit(4)
    nodes = [NO_NODE] * 4
    for _ in range(10):
        rows = bandit.rows(algorithm)
        rows.next_terminated = np.zeros(4, bool)
        rows.nodes = nodes
        algorithm.feedback_rows(rows)
        nodes = rows.nodes
    assert algorithm.learner.replay.observation_rows == 44
