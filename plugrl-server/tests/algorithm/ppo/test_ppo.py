"""PPO, by the rules of every algorithm: each is named in the test that holds it.

Rules 1, 2 and 5 are held where advantages are computed, in `on_policy`.
"""

import copy

import numpy as np
import pytest
import torch
from plugrl_protocol.spaces import MultiDiscreteSpace
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.on_policy.on_policy_algorithm import normalized
from plugrl_server.algorithm.ppo.ppo import PPO, adapted_rate, approximate_kl, policy_loss, value_loss
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.categorical.categorical_policy import CategoricalPolicy
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig


def observation(*values):
    return {"images": {}, "states": {"s": np.array(values, float)[:, None]}, "text": np.full(len(values), "")}


def message(values, next_values, reward, nodes, terminated=(), truncated=()):
    """Feedback of len(values) environments, their states one number each."""
    m = len(values)
    no = np.zeros(m, bool)
    return FeedbackRows(
        obs=observation(*values),
        runtime_state=None,
        train_state=np.zeros((m, 1), np.float32),
        terminated=no,
        truncated=no,
        next_obs=observation(*next_values),
        reward=np.array(reward, np.float32),
        info=[{}] * m,
        next_terminated=np.isin(np.arange(m), terminated),
        next_truncated=np.isin(np.arange(m), truncated),
        nodes=nodes,
    )


def samples_of(algorithm):
    return algorithm.samples(algorithm.frames(algorithm.rollout.stored())[0])


# Losses ----------------------------------------------------------------------------------------------------------


def numpy_losses(log_ratio, advantage, value, old_value, returns, clip, clip_value):
    """The formulae of the paper and of CleanRL, written down literally."""
    losses, values = [], []
    a = advantage
    if len(a) > 1:
        a = (a - a.mean()) / (a.std(ddof=1) + 1e-8)
    for i in range(len(a)):
        r = np.exp(log_ratio[i])
        losses.append(max(-a[i] * r, -a[i] * min(max(r, 1 - clip), 1 + clip)))
        error = (value[i] - returns[i]) ** 2
        if clip_value:
            clipped = old_value[i] + min(max(value[i] - old_value[i], -clip), clip)
            error = max(error, (clipped - returns[i]) ** 2)
        values.append(error)
    return np.mean(losses), 0.5 * np.mean(values)


@pytest.mark.parametrize("n", [1, 2, 17])
@pytest.mark.parametrize("clip_value", [True, False])
def test_losses_are_the_literal_formulae(n, clip_value):
    rng = np.random.default_rng(n)
    log_ratio, advantage, value, old_value, returns = rng.standard_normal((5, n))
    tensors = map(torch.from_numpy, (log_ratio, advantage, value, old_value, returns))
    log_ratio_t, advantage_t, value_t, old_value_t, returns_t = tensors
    of_policy = policy_loss(log_ratio_t, normalized(advantage_t), 0.2)
    of_value = value_loss(value_t, old_value_t, returns_t, 0.2 if clip_value else None)
    expected = numpy_losses(log_ratio, advantage, value, old_value, returns, 0.2, clip_value)
    np.testing.assert_allclose([of_policy, of_value], expected, rtol=1e-9)


def test_the_kl_estimate_is_the_literal_formula():
    log_ratio = torch.randn(9, dtype=torch.float64)
    expected = np.mean([(np.exp(x) - 1) - x for x in log_ratio.numpy()])
    assert approximate_kl(log_ratio).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("approx_kl", "expected"),
    [(0.021, 1e-3 / 1.5), (0.0199, 1e-3), (0.0051, 1e-3), (0.0049, 1.2e-3), (1.0, 1e-3 / 1.5)],
)
def test_the_adapted_rate_keeps_the_kl_near_what_is_desired(approx_kl, expected):
    config = PPOConfig(desired_kl=0.01, anneal_learning_rate=False, max_learning_rate=1.2e-3)
    assert adapted_rate(1e-3, approx_kl, config) == pytest.approx(expected)
    assert adapted_rate(1e-3, approx_kl, PPOConfig()) == 1e-3
    assert adapted_rate(1e-5, 1.0, config) == 1e-5


def test_a_mini_batch_of_one_has_no_nan(make_ppo, make_bandit, iterate):
    algorithm = make_ppo(buffer_size=33, batch_size=32, update_epochs=2)
    metrics = iterate(algorithm, make_bandit(1))
    assert all(np.isfinite(value) for value in metrics.values())
    assert all(torch.isfinite(parameter).all() for parameter in algorithm.policy.parameters())


# Storing ---------------------------------------------------------------------------------------------------------


def test_feedback_and_the_vectorised_hook_store_the_same(make_ppo, make_bandit):
    one, many = make_ppo(buffer_size=64), make_ppo(buffer_size=64)
    first, second = make_bandit(), make_bandit()
    nodes_of_one, nodes_of_many = [NO_NODE] * 16, [NO_NODE] * 16
    for _ in range(4):
        rows = first.rows(one)
        rows.nodes[:] = nodes_of_one
        nodes_of_one = [one.feedback(**rows.row(i))[0] for i in range(len(rows))]
        rows = second.rows(many)
        rows.nodes[:] = nodes_of_many
        assert many.feedback_rows(rows) == 16
        nodes_of_many = rows.nodes
    assert nodes_of_one == nodes_of_many
    assert one.global_step == many.global_step == 64
    assert one.episodes.metrics() == many.episodes.metrics()
    for mine, theirs in zip(one.rollout.stored(), many.rollout.stored(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_rows_beyond_a_full_buffer_are_not_taken(make_ppo):
    algorithm = make_ppo(buffer_size=32)
    values = np.arange(20.0)
    rows = message(values, values, values, [NO_NODE] * 20)
    assert algorithm.feedback_rows(rows) == 20
    rows = message(values, values, values, rows.nodes)
    assert algorithm.feedback_rows(rows) == 12
    assert [slot for slot, _ in rows.nodes] == [*range(20, 32), *range(12, 20)]
    assert algorithm.should_learn()
    assert algorithm.feedback_rows(rows) == 0
    assert algorithm.global_step == 32


def test_train_states_size_the_buffer(make_ppo):
    assert make_ppo().example_train_state(5).shape == (5, 1)


def test_it_refuses_a_policy_without_a_critic():
    with pytest.raises(ConfigError, match="needs an actor-critic policy such as gaussian-policy, got DummyPolicy"):
        PPO(PPOConfig(), DummyPolicy(DummyPolicyConfig()))


def test_rule_8_a_configuration_that_can_never_learn_is_refused(make_ppo):
    with pytest.raises(ConfigError, match=r"buffer-size 4096 is larger than --algo\.global-steps 100"):
        make_ppo(buffer_size=4096, global_steps=100)


# Learning --------------------------------------------------------------------------------------------------------


def ratios(algorithm):
    """Probability ratios of every mini-batch of an epoch, before any step."""
    with torch.no_grad():
        return torch.cat(
            [
                (algorithm.policy.evaluate(batch.features, batch.sample)[0] - batch.log_prob).exp()
                for batch in algorithm.batches(samples_of(algorithm))
            ]
        )


@pytest.mark.parametrize("discrete", [False, True])
def test_rule_4_the_ratio_is_1_before_the_first_step_of_every_iteration_and_after_a_load(
    make_ppo, bandit, collect, iterate, discrete
):
    make = choosing if discrete else make_ppo
    algorithm = make()
    for _ in range(3):
        collect(algorithm, bandit)
        torch.testing.assert_close(ratios(copy.deepcopy(algorithm)), torch.ones(128), atol=1e-6, rtol=0)
        iterate(algorithm, bandit)
    assert algorithm.policy.normalizer.count == 3 * 128
    resumed = make(seed=9)
    resumed.load_checkpoint(algorithm.create_checkpoint().copy())
    collect(resumed, bandit)
    torch.testing.assert_close(ratios(resumed), torch.ones(128), atol=1e-6, rtol=0)


def choosing(seed=0, **changes):
    """PPO on a categorical policy of parts with 2 and 4 choices."""
    seed_everything(seed)
    space = MultiDiscreteSpace(np.array([2, 4]))
    policy = CategoricalPolicy(CategoricalPolicyConfig(obs_dim=1, action_space=space, device="cpu"))
    return PPO(PPOConfig(buffer_size=128, batch_size=32, learning_rate=1e-2, **changes), policy)


def gaussian_log_prob(policy, outputs, sample):
    std = policy.log_std.detach().double().exp().numpy()
    return (-0.5 * ((sample - outputs) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(1)


def categorical_log_prob(_, outputs, sample):
    parts = [outputs[:, :2], outputs[:, 2:]]
    return sum(
        part[range(len(part)), chosen] - np.log(np.exp(part).sum(1))
        for part, chosen in zip(parts, sample.T, strict=True)
    )


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("loaded", [False, True])
def test_rule_4_learning_sees_what_the_policy_saw_and_computed_when_it_acted(
    make_ppo, compare_acting_with_learning, discrete, loaded
):
    """The ratio of the probability that learning begins with to that of acting, by the actor's outputs then."""
    make, log_prob = (choosing, categorical_log_prob) if discrete else (make_ppo, gaussian_log_prob)

    def the_same(algorithm, features, frames, rows, calls):
        (_, outputs), policy = calls[0], algorithm.policy
        np.testing.assert_allclose(policy.outputs_and_value(features)[0], outputs, atol=1e-6)
        acted = log_prob(policy, outputs.astype(float), frames.sample[rows].numpy())
        ratio = np.exp(algorithm.samples(frames).log_prob[rows].numpy() - acted)
        np.testing.assert_allclose(ratio, 1, atol=2e-6)

    compare_acting_with_learning(make, "actor_outputs", the_same, loaded)


def test_it_learns_a_bandit_and_holds_it(make_ppo, bandit, iterate):
    """Going on learning after the optimum does not lose it: the last cost is at most twice the best."""
    policy = {"initial_log_std": -0.5, "hidden_sizes": (32,)}
    algorithm = make_ppo(learning_rate=5e-3, anneal_learning_rate=False, policy=policy)
    costs = [-iterate(algorithm, bandit)["rollout/reward"] for _ in range(60)]
    smooth = np.convolve(costs, np.ones(5) / 5, "valid")
    assert costs[0] > 0.5
    assert smooth.min() < 0.05
    assert smooth[-1] <= 2 * smooth.min()


def test_it_learns_a_bandit_of_choices(make_bandit):
    """MultiDiscrete with unequal parts: the best choices are 1 and 3."""
    algorithm = choosing(anneal_learning_rate=False)
    rows = make_bandit(16)
    for _ in range(12):
        while not algorithm.should_learn():
            obs = rows.observation()
            action, runtime_state = algorithm.infer(obs)
            reward = ((action[:, 0] == [1, 3]).sum(-1)).astype(np.float32)
            made = message(np.zeros(16), np.zeros(16), reward, [NO_NODE] * 16, terminated=range(16))
            made.obs, made.train_state = obs, algorithm.derive_train_state(runtime_state)
            algorithm.feedback_rows(made)
        algorithm.learn()
    assert reward.mean() > 1.8


def test_metrics_are_floats_under_the_documented_names(make_ppo, bandit, iterate):
    metrics = iterate(make_ppo(), bandit)
    names = [
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "learning_rate",
    ]
    assert {f"losses/{name}" for name in names} == {name for name in metrics if name.startswith("losses/")}
    assert {"rollout/reward", "rollout/length"} <= metrics.keys()
    assert all(type(value) is float for value in metrics.values())


def test_explained_variance_is_absent_without_variance(make_ppo):
    algorithm = make_ppo(buffer_size=2, batch_size=2, normalize_rewards=False)
    algorithm.feedback_rows(message([1, 1], [1, 1], [0, 0], [NO_NODE] * 2, terminated=[0, 1]))
    assert "losses/explained_variance" not in algorithm.learn()[1]


def test_rule_6_the_device_is_not_waited_for_in_every_mini_batch(make_ppo, waits_of_an_update):
    few, many = (waits_of_an_update(make_ppo(batch_size=size)) for size in (64, 8))
    assert few == many > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rule_7_narrow_weights_are_trained_through_float32_masters(make_ppo, bandit, iterate, dtype):
    algorithm = make_ppo(policy={"dtype": dtype}, learning_rate=1e-5, anneal_learning_rate=False)
    before = copy.deepcopy(algorithm.policy.state_dict())
    iterate(algorithm, bandit, 12)
    after = algorithm.policy.state_dict()
    assert after["actor.2.weight"].dtype == getattr(torch, dtype)
    assert after["normalizer.count"].dtype == torch.float64
    # A step of 1e-5 is below the resolution of most weights; 192 of them are not.
    changed = (before["actor.2.weight"] != after["actor.2.weight"]).float().mean()
    assert changed > 0.2
