"""What PPO can do besides the defaults: schedules of the learning rate, early stops, a critic treated apart."""

import copy

import pytest
import torch


def test_the_learning_rate_is_annealed_over_the_run(make_ppo, bandit, iterate):
    algorithm = make_ppo(global_steps=128 * 4, learning_rate=0.001)
    rates = [iterate(algorithm, bandit)["losses/learning_rate"] for _ in range(4)]
    assert rates == pytest.approx([0.001, 0.00075, 0.0005, 0.00025])
    constant = make_ppo(anneal_learning_rate=False)
    assert iterate(constant, bandit, 2)["losses/learning_rate"] == 3e-4


def test_target_kl_skips_the_remaining_epochs(make_ppo, bandit, collect, monkeypatch):
    counts = {}
    for target in (None, 1e-9):
        algorithm = make_ppo(target_kl=target, update_epochs=5, learning_rate=1e-2)
        steps = []
        original = algorithm.optimizer.step
        monkeypatch.setattr(algorithm.optimizer, "step", lambda *a, s=steps, o=original: (s.append(1), o(*a)))
        collect(algorithm, bandit)
        algorithm.learn()
        counts[target] = len(steps)
    assert counts == {None: 5 * 4, 1e-9: 4}


def test_the_value_clip_has_a_coefficient_of_its_own(make_ppo, bandit, collect):
    """The step differs from that of the shared coefficient, and equals that of the same number."""
    weights = {}
    for name, changes in {
        "shared": {},
        "own": {"clip_vloss_coef": 0.01},
        "equal": {"clip_vloss_coef": 0.2},
        "off": {"clip_vloss": False, "clip_vloss_coef": 0.01},
        "none": {"clip_vloss": False},
    }.items():
        algorithm = make_ppo(learning_rate=1e-2, **changes)
        bandit.round = 0
        collect(algorithm, bandit)
        algorithm.learn()
        weights[name] = algorithm.policy.critic[0].weight.detach()
    assert torch.equal(weights["shared"], weights["equal"])
    assert not torch.equal(weights["shared"], weights["own"])
    assert torch.equal(weights["off"], weights["none"])


def test_the_learning_rates_follow_the_kl(make_ppo, bandit, iterate):
    algorithm = make_ppo(
        desired_kl=1e-6, anneal_learning_rate=False, critic_learning_rate=3e-3, learning_rate=1e-3, update_epochs=2
    )
    assert iterate(algorithm, bandit)["losses/learning_rate"] == 1e-3
    rates = [group.learning_rate for group in algorithm.optimizer.groups]
    assert rates == pytest.approx([1e-3 / 1.5**2, 3e-3 / 1.5**2])
    assert iterate(algorithm, bandit)["losses/learning_rate"] == pytest.approx(1e-3 / 1.5**2)
    resumed = make_ppo(desired_kl=1e-6, anneal_learning_rate=False, critic_learning_rate=3e-3, learning_rate=1e-3)
    resumed.load_checkpoint(algorithm.create_checkpoint())
    assert resumed.learning_rates() == pytest.approx([1e-3 / 1.5**4, 3e-3 / 1.5**4])


def test_critic_warm_up_leaves_the_actor_alone(make_ppo, bandit, iterate):
    algorithm = make_ppo(critic_warmup_iterations=1, critic_learning_rate=1e-3)
    before = copy.deepcopy(algorithm.policy.state_dict())
    iterate(algorithm, bandit)
    after = algorithm.policy.state_dict()
    assert torch.equal(before["actor.0.weight"], after["actor.0.weight"])
    assert not torch.equal(before["critic.0.weight"], after["critic.0.weight"])
    iterate(algorithm, bandit)
    assert not torch.equal(before["actor.0.weight"], algorithm.policy.state_dict()["actor.0.weight"])


@pytest.mark.parametrize("changes", [{}, {"critic_learning_rate": 1e-3}, {"max_grad_norm": None}])
def test_the_actor_s_first_step_after_the_warm_up_is_no_larger_than_its_rate(make_ppo, warm_up_and_step, changes):
    warm_up_and_step(make_ppo(critic_warmup_iterations=1, anneal_learning_rate=False, **changes))


def test_a_checkpoint_of_before_the_critic_had_a_group_for_its_warm_up_loads(make_ppo, bandit, iterate):
    """One group for actor and critic, as without a warm-up now."""
    saved = make_ppo()
    iterate(saved, bandit)
    resumed = make_ppo(seed=3, critic_warmup_iterations=1)
    resumed.load_checkpoint(saved.create_checkpoint().copy())
    groups = resumed.optimizer.state_dict()["groups"]
    joined = torch.cat([group["first_moment"] for group in groups])
    assert torch.equal(joined, saved.optimizer.state_dict()["groups"][0]["first_moment"])
    iterate(resumed, bandit)


def test_the_critic_can_have_its_own_learning_rate(make_ppo):
    algorithm = make_ppo(critic_learning_rate=1e-2)
    assert [group.learning_rate for group in algorithm.optimizer.groups] == [3e-4, 1e-2]
    assert sum(len(group.parameters) for group in algorithm.optimizer.groups) == 13
