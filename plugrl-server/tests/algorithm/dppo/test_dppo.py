"""DPPO, by the rules of every algorithm: each is named in the test that holds it."""

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.dppo.dppo import (
    DPPO,
    clip_coefs,
    denoising_discounts,
    policy_loss,
    quantile_clipped,
    step_log_prob,
    value_loss,
)
from plugrl_server.algorithm.dppo.dppo_config import DPPOConfig
from plugrl_server.algorithm.on_policy.on_policy_algorithm import Frames
from plugrl_server.common.config_error import ConfigError
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.fpo.fpo_policy import FPOPolicy
from plugrl_server.policy.fpo.fpo_policy_config import FPOPolicyConfig

# Losses ----------------------------------------------------------------------------------------------------------


def test_log_probabilities_are_the_literal_formula():
    rng = np.random.default_rng(0)
    x_next, mean = rng.standard_normal((2, 9, 4, 3))
    std = rng.uniform(0.05, 2, (9, 1, 1))
    executed = rng.integers(1, 5, 9)
    expected, clamps = [], 0
    for i in range(9):
        terms = []
        for h in range(executed[i]):
            for a in range(3):
                z = (x_next[i, h, a] - mean[i, h, a]) / std[i, 0, 0]
                log_density = -0.5 * z * z - np.log(std[i, 0, 0]) - 0.5 * np.log(2 * np.pi)
                terms.append(min(max(log_density, -5), 2))
                clamps += terms[-1] != log_density
        expected.append(np.mean(terms))
    got = step_log_prob(*map(torch.from_numpy, (x_next, mean, std, executed)))
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert clamps > 5


@pytest.mark.parametrize(("steps", "last", "first", "rate"), [(10, 0.1, 0.01, 3.0), (2, 0.2, 0.3, 1.0), (5, 1, 1, 2.0)])
def test_the_clip_schedule_is_the_literal_formula(steps, last, first, rate):
    expected = [
        first + (last - first) * (np.exp(rate * k / (steps - 1)) - 1) / (np.exp(rate) - 1) for k in range(steps)
    ]
    np.testing.assert_allclose(clip_coefs(steps, last, first, rate), expected, rtol=1e-5)
    assert (expected[0], expected[-1]) == pytest.approx((first, last))


def test_one_step_is_clipped_by_the_coefficient_itself():
    assert clip_coefs(1, 0.2, 0.01, 3.0).tolist() == pytest.approx([0.2])


def test_later_denoising_steps_are_discounted_less():
    assert denoising_discounts(3, 0.5).tolist() == [0.25, 0.5, 1]
    assert denoising_discounts(1, 0.5).tolist() == [1]


@pytest.mark.parametrize("n", [1, 2, 17])
def test_losses_are_the_literal_formulae(n):
    rng = np.random.default_rng(n)
    log_ratio, advantage, value, returns = rng.standard_normal((4, n))
    eps = rng.uniform(0.01, 0.5, n)
    losses = []
    for r, a, e in zip(np.exp(log_ratio), advantage, eps, strict=True):
        losses.append(max(-a * r, -a * min(max(r, 1 - e), 1 + e)))
    got = policy_loss(*map(torch.from_numpy, (log_ratio, advantage, eps)))
    assert got.item() == pytest.approx(np.mean(losses), rel=1e-9)
    got = value_loss(torch.from_numpy(value), torch.from_numpy(returns))
    assert got.item() == pytest.approx(0.5 * np.mean((value - returns) ** 2), rel=1e-9)


def test_advantages_are_clipped_to_quantiles():
    advantage = torch.arange(101.0)
    assert quantile_clipped(advantage, 0.05).aminmax() == (5, 95)
    assert quantile_clipped(torch.tensor([3.0]), 0.05).tolist() == [3]


def test_advantages_of_pairs_are_normalised_over_the_mini_batch_then_discounted(make_dppo, bandit, collect):
    algorithm = make_dppo(gamma_denoising=0.5)
    collect(algorithm, bandit)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    pair = torch.tensor([5 * 3 + 4, 5 * 3, 5 * 7 + 2])
    a = frames.advantage[torch.tensor([3, 3, 7])].numpy()
    expected = (a - a.mean()) / (a.std(ddof=1) + 1e-8) * np.array([1, 0.5**4, 0.5**2])
    np.testing.assert_allclose(algorithm._advantages(frames, pair), expected, rtol=1e-5)


# Storing ---------------------------------------------------------------------------------------------------------


def test_it_refuses_a_policy_without_a_chain():
    with pytest.raises(ConfigError, match="needs a denoising policy such as dppo-policy, got DummyPolicy"):
        DPPO(DPPOConfig(), DummyPolicy(DummyPolicyConfig()))


@pytest.mark.parametrize(
    ("changes", "problem"), [({"finetuned_steps": 6}, "more than"), ({"executed_steps": 2}, "more than")]
)
def test_rule_8_more_steps_than_there_are_are_refused(make_dppo, changes, problem):
    with pytest.raises(ConfigError, match=problem):
        make_dppo(**changes)


def test_train_states_are_the_end_of_the_chain(make_dppo):
    algorithm = make_dppo(policy={"action_horizon": 4}, finetuned_steps=2, executed_steps=3)
    state = algorithm.example_train_state(5)
    assert state["chain"].shape == (5, 3, 4, 1)
    assert state["executed"].tolist() == [3] * 5


def chunk_rows(algorithm, infos, done):
    n = len(infos)
    obs = {"images": {}, "states": {"s": np.linspace(-1, 1, n)[:, None]}, "text": np.full(n, "")}
    runtime_state = algorithm.infer(obs)[1]
    no = np.zeros(n, bool)
    return FeedbackRows(
        obs=obs,
        runtime_state=runtime_state,
        train_state=algorithm.derive_train_state(runtime_state),
        terminated=no,
        truncated=no,
        next_obs=obs,
        reward=np.arange(n, dtype=np.float32),
        info=infos,
        next_terminated=np.array(done),
        next_truncated=no,
        nodes=[NO_NODE] * n,
    )


def test_actions_that_were_not_run_do_not_count(make_dppo):
    """Moving the part of the last chunk that lies behind the episode's end leaves log p as it is."""
    algorithm = make_dppo(policy={"action_horizon": 4}, buffer_size=2, batch_size=2)
    algorithm.feedback_rows(chunk_rows(algorithm, [{"episode": {"l": 6}}, {}], [True, False]))
    stored = algorithm.rollout.stored().train_state
    assert stored["executed"].tolist() == [2, 4]
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    last = torch.tensor([4, 9])  # the last steps, whose next states are read by no other
    before = algorithm._log_prob(frames, last)
    frames.sample["chain"][:, -1, 2:] += 0.01
    after = algorithm._log_prob(frames, last)
    assert after[0] == before[0]
    assert after[1] != before[1]


# Advantages ------------------------------------------------------------------------------------------------------


def test_rules_1_and_2_termination_bootstraps_nothing_and_truncation_the_final_observation(make_dppo):
    algorithm = make_dppo(buffer_size=3, batch_size=3, normalize_rewards=False, gae_lambda=0.0)
    rows = chunk_rows(algorithm, [{}] * 3, [False, True, False])
    rows.next_truncated = np.array([False, False, True])
    algorithm.feedback_rows(rows)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    v = frames.value.numpy()  # the next observation is the same one
    np.testing.assert_allclose(frames.returns, [0.99 * v[0], 1, 2 + 0.99 * v[2]], rtol=1e-5)


def test_rule_5_the_running_return_restarts_at_episode_starts_and_is_checkpointed(make_dppo, bandit, iterate):
    algorithm = make_dppo()
    iterate(algorithm, bandit)
    rewards = algorithm.rollout.reward.copy()
    assert algorithm.return_normalizer.variance.item() == pytest.approx(rewards.var(), rel=1e-4)
    resumed = make_dppo(seed=3)
    resumed.load_checkpoint(algorithm.create_checkpoint().copy())
    assert resumed.return_normalizer.state_dict() == algorithm.return_normalizer.state_dict()


# Learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finetuned_steps", [1, 3, 5])
@pytest.mark.parametrize("loaded", [False, True])
def test_rule_4_the_ratio_is_1_before_the_first_step(make_dppo, bandit, collect, iterate, finetuned_steps, loaded):
    """By other batches than the old probabilities were taken in, after iterations that moved the normaliser."""
    algorithm = make_dppo(finetuned_steps=finetuned_steps)
    iterate(algorithm, bandit, 2)
    collect(algorithm, bandit)
    if loaded:
        checkpoint, algorithm = algorithm.create_checkpoint().copy(), make_dppo(seed=9, finetuned_steps=finetuned_steps)
        algorithm.load_checkpoint(checkpoint)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    old = algorithm._old_log_probs(frames)
    assert len(old) == 128 * finetuned_steps
    for pair, order in algorithm._mini_batches(128):
        assert (len(pair), len(order)) == (32 * finetuned_steps, 32)
        ratio = (algorithm._log_prob(frames, pair) - old[pair]).exp()
        assert abs(ratio - 1).max() < 1e-6


def the_same_probabilities(algorithm, features, frames, rows, calls):
    """The ratio of the probability that learning begins with to that of acting, of each step that learns."""
    steps, chain, executed = algorithm.finetuned_steps, frames.sample["chain"][rows], frames.sample["executed"][rows]
    pairs = torch.arange(len(frames.value) * steps).view(-1, steps)[rows]
    for k, ((condition, x, _), (mean, std)) in enumerate(calls[-steps:]):
        torch.testing.assert_close(condition, features, atol=1e-6, rtol=0)
        torch.testing.assert_close(chain[:, k], x)
        acted = step_log_prob(chain[:, k + 1], mean, std.clamp(min=algorithm.config.min_logprob_std), executed)
        ratio = (algorithm._log_prob(frames, pairs[:, k]) - acted).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=2e-6, rtol=0)


@pytest.mark.parametrize("finetuned_steps", [1, 5])
@pytest.mark.parametrize("loaded", [False, True])
def test_rule_4_learning_sees_what_the_policy_saw_and_computed_when_it_acted(
    make_dppo, compare_acting_with_learning, finetuned_steps, loaded
):
    compare = (the_same_probabilities, loaded)
    compare_acting_with_learning(make_dppo, "denoise_step", *compare, finetuned_steps=finetuned_steps)


def test_old_probabilities_are_those_of_the_steps_that_were_sampled(make_dppo, bandit, collect):
    """(x_{k+1} - mean) / std is the noise that was drawn: clipped standard normal numbers."""
    algorithm = make_dppo(buffer_size=512, policy={"min_sampling_std": 0.1})
    collect(algorithm, bandit)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    chain, policy = frames.sample["chain"], algorithm.policy
    for k in range(5):
        step = torch.full((512,), k)
        with torch.no_grad():
            mean, std = policy.denoise_step(policy.condition(frames.features), chain[:, k], step)
        noise = (chain[:, k + 1] - mean) / std
        assert abs(noise).max() < 3.001
        assert noise.std().item() == pytest.approx(1, abs=0.1)


def test_images_are_encoded_once_for_all_steps_of_a_frame(make_dppo):
    algorithm = make_dppo(policy={"obs_dim": 0, "image_keys": ("eye",), "image_shapes": {"eye": (36, 36, 1)}})
    images = np.random.default_rng(0).integers(0, 255, (5, 36, 36, 1), np.uint8)
    frames = Frames(algorithm.policy.features({"images": {"eye": images}}), None, None, None, None)
    seen = []
    algorithm.policy.encoder.register_forward_hook(lambda *call: seen.append(len(call[-1])))
    frame = torch.tensor([3, 1, 3, 3, 4, 1])
    got = algorithm._condition(frames, frame)
    torch.testing.assert_close(got, algorithm.policy.condition(frames.features)[frame])
    assert seen == [3, 5]


def test_gradients_reach_the_actor_from_the_policy_loss_and_the_critic_from_the_value_loss(make_dppo, bandit, collect):
    algorithm = make_dppo()
    collect(algorithm, bandit)
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    pair = torch.arange(40)
    actor, critic = list(algorithm.policy.actor_parameters()), list(algorithm.policy.critic_parameters())
    for loss, moved, still in (
        (algorithm._log_prob(frames, pair).sum(), actor, critic),
        (algorithm.policy.value(frames.features).sum(), critic, actor),
    ):
        algorithm.optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in moved)
        assert all(parameter.grad.abs().sum() == 0 for parameter in still)


def test_frozen_early_steps_do_not_change_and_the_rest_does(make_dppo, bandit, iterate):
    algorithm = make_dppo(finetuned_steps=2)
    assert algorithm.policy.early_steps == 3
    before = {name: tensor.clone() for name, tensor in algorithm.policy.state_dict().items()}
    iterate(algorithm, bandit, 3)
    after = algorithm.policy.state_dict()
    frozen = [name for name in before if name.startswith("frozen")]
    assert len(frozen) > 4
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert all(not torch.equal(before[name], after[name]) for name in before if name.startswith(("actor", "critic.")))


@pytest.mark.parametrize(
    "changes",
    [
        {"buffer_size": 33, "batch_size": 32, "finetuned_steps": 1},
        {"buffer_size": 3, "batch_size": 1, "finetuned_steps": 1, "advantage_quantile": 0.1},
        {"buffer_size": 33, "batch_size": 32},
    ],
)
def test_a_mini_batch_of_one_has_no_nan(make_dppo, make_bandit, iterate, changes):
    algorithm = make_dppo(**changes)
    metrics = iterate(algorithm, make_bandit(1), 2)
    assert all(np.isfinite(value) for value in metrics.values())
    assert all(torch.isfinite(parameter).all() for parameter in algorithm.policy.parameters())


def test_the_critic_warms_up_alone(make_dppo, bandit, iterate):
    algorithm = make_dppo(critic_warmup_iterations=1)
    actor = [parameter.detach().clone() for parameter in algorithm.policy.actor_parameters()]
    critic = [parameter.detach().clone() for parameter in algorithm.policy.critic_parameters()]
    iterate(algorithm, bandit)
    assert all(map(torch.equal, algorithm.policy.actor_parameters(), actor))
    assert not any(map(torch.equal, algorithm.policy.critic_parameters(), critic))
    iterate(algorithm, bandit)
    assert not any(map(torch.equal, algorithm.policy.actor_parameters(), actor))


def test_the_actor_s_first_step_after_the_warm_up_is_no_larger_than_its_rate(make_dppo, warm_up_and_step):
    warm_up_and_step(make_dppo(critic_warmup_iterations=1))


def test_a_kl_above_the_target_skips_the_remaining_epochs(make_dppo, bandit, iterate):
    algorithm = make_dppo(target_kl=1e-12, update_epochs=7)
    iterate(algorithm, bandit)
    assert [group["step"] for group in algorithm.optimizer.state_dict()["groups"]] == [4, 4]


def test_rule_6_the_device_is_not_waited_for_in_every_mini_batch(make_dppo, waits_of_an_update):
    few, many = (waits_of_an_update(make_dppo(batch_size=size, target_kl=1e9)) for size in (64, 8))
    assert few == many > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rule_7_narrow_weights_follow_float32_masters(make_dppo, bandit, iterate, dtype):
    algorithm = make_dppo(policy={"dtype": dtype}, learning_rate=1e-5)
    metrics = iterate(algorithm, bandit, 2)
    assert all(np.isfinite(value) for value in metrics.values())
    weights = torch.cat([parameter.detach().flatten() for parameter in algorithm.policy.actor_parameters()])
    master = algorithm.optimizer.state_dict()["groups"][0]["master"]
    assert (weights.dtype, master.dtype) == (getattr(torch, dtype), torch.float32)
    assert torch.equal(weights, master.to(weights.dtype))
    assert not torch.equal(weights.float(), master)


def cost(algorithm, bandit, collect):
    collect(algorithm, bandit)
    return -algorithm.rollout.stored().reward.mean()


def test_it_learns_a_bandit_and_holds_it(make_dppo, bandit, collect):
    algorithm = make_dppo(batch_size=64, update_epochs=4, learning_rate=2e-3, clip_coef=0.1, clip_coef_base=0.1)
    first, costs = cost(algorithm, bandit, collect), []
    for _ in range(50):
        algorithm.learn()
        costs.append(cost(algorithm, bandit, collect))
    assert first > 0.5
    best, last = np.convolve(costs, np.ones(5) / 5, "valid").min(), np.mean(costs[-5:])
    assert best < 0.03  # the noise of the last step alone costs 0.01
    assert last < 2 * best


@pytest.mark.parametrize("finetuned_steps", [None, 1])
def test_it_trains_a_flow_policy_all_of_it_or_its_last_step(bandit, collect, finetuned_steps):
    seed_everything(0)
    sizes = {"obs_dim": 1, "action_dim": 1, "num_steps": 4, "exploration_noise": 0.4, "device": "cpu"}
    policy = FPOPolicy(FPOPolicyConfig(critic_hidden_sizes=(32,), output_scale=1.0, **sizes))
    options = {"learning_rate": 3e-3, "clip_coef": 0.1, "clip_coef_base": 0.1, "finetuned_steps": finetuned_steps}
    algorithm = DPPO(DPPOConfig(buffer_size=128, batch_size=64, update_epochs=4, **options), policy)
    first = cost(algorithm, bandit, collect)
    for _ in range(30):
        algorithm.learn()
        last = cost(algorithm, bandit, collect)
    assert last < first / 4
