"""FPO: its losses and objectives against a literal transcription, its ratio, and that it learns and holds."""

import copy

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.fpo.fpo import (
    FPO,
    Batch,
    aspo_objective,
    interpolated,
    log_ratios,
    noise_error,
    ppo_objective,
    spo_objective,
    squared,
    straight_through_clamp,
    value_loss,
    velocity_error,
)
from plugrl_server.algorithm.fpo.fpo_config import (
    FPOCheetahConfig,
    FPOConfig,
    FPOPlusPlusConfig,
    FPOPlusPlusFinetuneConfig,
)
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.denoising.denoising_policy import DenoisingPolicy
from plugrl_server.policy.dummy.dummy_policy import DummyPolicy
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig

PRESETS = [FPOConfig, FPOPlusPlusConfig, FPOPlusPlusFinetuneConfig, FPOCheetahConfig]


def draws_of(algorithm):
    """The iteration's frames with their draws, as `update` makes them; the generator is left as it was."""
    frames, _ = algorithm.frames(algorithm.rollout.stored())
    state = algorithm.generator.get_state()
    batch = algorithm.draw(frames)
    algorithm.generator.set_state(state)
    return batch


def random_batch(n=7, s=5, horizon=2, numbers=3, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def make(*shape):
        return torch.randn(*shape, generator=generator)

    return Batch(
        features=make(n, 1),
        sample=make(n, horizon, numbers),
        executed=1 + torch.arange(n) % horizon,
        noise=make(n, s, horizon, numbers),
        time=torch.rand(n, s, generator=generator),
        old_loss=make(n, s).exp(),
        advantage=make(n),
        returns=make(n),
    )


# Losses ----------------------------------------------------------------------------------------------------------


def numpy_losses(velocity, batch, flow_loss, reduction, huber_delta):
    """The formulae of the papers, one draw, one step and one number at a time."""
    n, s, _, numbers = batch.noise.shape
    losses = np.zeros((n, s))
    for i in range(n):
        for j in range(s):
            terms = []
            for h in range(batch.executed[i]):
                for d in range(numbers):
                    a, eps = float(batch.sample[i, h, d]), float(batch.noise[i, j, h, d])
                    t, v = float(batch.time[i, j]), float(velocity[i, j, h, d])
                    x = t * eps + (1 - t) * a
                    e = v - (eps - a) if flow_loss == "u" else eps - (x - t * v + v)
                    if huber_delta is not None and abs(e) > huber_delta:
                        terms.append(2 * huber_delta * abs(e) - huber_delta**2)
                    else:
                        terms.append(e * e)
            losses[i, j] = sum(terms) if reduction == "sum" else sum(terms) / len(terms)
    return losses


@pytest.mark.parametrize("flow_loss", ["u", "u_but_supervise_as_eps"])
@pytest.mark.parametrize(("reduction", "huber_delta"), [("mean", None), ("sum", None), ("sum", 1.0)])
def test_flow_losses_are_the_literal_formulae(make_fpo, flow_loss, reduction, huber_delta):
    """Chunks of 3 of which 1, 2 or 3 actions were run."""
    algorithm = make_fpo(
        policy={"action_dim": 2, "action_horizon": 3},
        flow_loss=flow_loss,
        loss_reduction=reduction,
        huber_delta=huber_delta,
    )
    batch = random_batch(horizon=3, numbers=2)
    velocity = np.zeros((7, 5, 3, 2))
    with torch.no_grad():
        for j in range(5):
            t = batch.time[:, j]
            x = t[:, None, None] * batch.noise[:, j] + (1 - t[:, None, None]) * batch.sample
            velocity[:, j] = algorithm.policy.velocity(batch.features, x, t)
        losses = algorithm.flow_losses(batch)
    expected = numpy_losses(velocity, batch, flow_loss, reduction, huber_delta)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_losses_are_clamped_from_above(make_fpo):
    batch = random_batch(horizon=1, numbers=1)
    with torch.no_grad():
        whole, clamped = (make_fpo(loss_clamp=clamp).flow_losses(batch) for clamp in (None, 0.5))
    assert whole.max() > 0.5
    torch.testing.assert_close(clamped, whole.clamp(max=0.5))


def test_supervising_as_noise_is_the_velocity_loss_times_one_minus_t_squared():
    batch = random_batch()
    velocity = torch.randn(batch.noise.shape, generator=torch.Generator().manual_seed(1))
    x = interpolated(batch.sample, batch.noise, batch.time)
    of_noise = noise_error(velocity, x, batch.noise, batch.time).square()
    of_velocity = velocity_error(velocity, batch.sample, batch.noise).square()
    torch.testing.assert_close(of_noise, (1 - batch.time[..., None, None]).square() * of_velocity, rtol=1e-4, atol=1e-5)


def test_the_path_goes_from_the_chunk_at_0_to_noise_at_1():
    batch = random_batch(s=2)
    x = interpolated(batch.sample, batch.noise, torch.tensor([[0.0, 1.0]]).expand(7, 2))
    assert torch.equal(x[:, 0], batch.sample)
    assert torch.equal(x[:, 1], batch.noise[:, 1])


def test_the_true_velocity_has_no_loss():
    batch = random_batch()
    velocity = batch.noise - batch.sample[:, None]
    x = interpolated(batch.sample, batch.noise, batch.time)
    assert velocity_error(velocity, batch.sample, batch.noise).abs().max() == 0
    assert noise_error(velocity, x, batch.noise, batch.time).abs().max() < 1e-6


def test_huber_goes_on_in_a_line_where_the_square_leaves_off():
    error = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], requires_grad=True)
    value = squared(error, 1.0)
    assert value.tolist() == [5, 1, 0.25, 0, 0.25, 1, 5]
    (slope,) = torch.autograd.grad(value.sum(), error)
    assert slope.tolist() == [-2, -2, -1, 0, 1, 2, 2]


def test_the_value_loss_is_the_mean_squared_error():
    assert value_loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])) == (4 + 9) / 2


# Ratios and objectives -------------------------------------------------------------------------------------------


def test_the_clamp_passes_gradients_straight_through():
    value = torch.tensor([-20.0, -10.0, 3.0, 15.0], requires_grad=True)
    clamped = straight_through_clamp(value, 10.0)
    assert clamped.tolist() == [-10, -10, 3, 10]
    (gradient,) = torch.autograd.grad((clamped * torch.tensor([1.0, 2, 3, 4])).sum(), value)
    assert gradient.tolist() == [1, 2, 3, 4]


def test_ratios_are_of_the_mean_or_of_each_draw():
    old, new = torch.tensor([[1.0, 4.0]]), torch.tensor([[0.5, 2.0]])
    assert log_ratios(old, new, False, None).tolist() == [[1.25]]
    assert log_ratios(old, new, True, None).tolist() == [[0.5, 2.0]]
    assert log_ratios(old, new, True, 1.0).tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize(
    ("ratio", "advantage", "ppo", "spo"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.2, 2.0, 2.2, 2.4 - 0.4),
        (0.8, 2.0, 1.6, 1.6 - 0.4),
        (1.2, -2.0, -2.4, -2.4 - 0.4),
        (0.8, -2.0, -1.8, -1.6 - 0.4),
        (1.2, 0.0, 0.0, 0.0),
    ],
)
def test_aspo_clips_good_actions_and_pulls_bad_ones_back(ratio, advantage, ppo, spo):
    """Clip 0.1, so that the penalty at r = 1 +- 0.2 is 2 / 0.2 * 0.04 = 0.4."""
    r, a = torch.tensor(ratio), torch.tensor(advantage)
    assert ppo_objective(r, a, 0.1).item() == pytest.approx(ppo)
    assert spo_objective(r, a, 0.1).item() == pytest.approx(spo, rel=1e-5)
    assert aspo_objective(r, a, 0.1).item() == pytest.approx(ppo if advantage > 0 else spo, rel=1e-5)


def test_aspo_is_best_for_a_bad_action_at_the_edge_of_the_interval():
    ratio = torch.tensor([0.8, 0.9, 1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(aspo_objective(ratio, torch.tensor(-1.0), 0.1).sum(), ratio)
    assert slope[0] > 0
    assert slope[1].item() == pytest.approx(0, abs=1e-5)
    assert slope[2] < 0


def numpy_policy_loss(old_loss, loss, advantage, config):
    """The objectives of the papers, one draw at a time."""
    advantages = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8) + config.advantage_shift
    c, terms = config.clip_coef, []
    for a, old, new in zip(advantages, old_loss, loss, strict=True):
        plain = config.objective == "ppo"  # and without the clamps of FPO++
        a = a if plain else np.clip(a, -100, 100)
        for difference in [np.mean(old - new)] if config.ratio == "mean" else old - new:
            r = np.exp(difference if plain else np.clip(difference, -10, 10))
            if plain or a > 0:
                terms.append(min(r * a, np.clip(r, 1 - c, 1 + c) * a))
            else:
                terms.append(r * a - abs(a) / (2 * c) * (r - 1) ** 2)
    return -np.mean(terms)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_policy_loss_is_the_literal_formula(make_fpo, preset):
    algorithm = make_fpo(preset=preset)
    batch = random_batch(n=6, horizon=1, numbers=1)
    with torch.no_grad():
        loss, flow_loss, log_ratio = algorithm.policy_loss(batch)
    expected = numpy_policy_loss(
        *(part.numpy() for part in (batch.old_loss, flow_loss, batch.advantage)), algorithm.config
    )
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert log_ratio.shape == ((6, 1) if preset in (FPOConfig, FPOCheetahConfig) else (6, 5))


# The ratio before the first step ---------------------------------------------------------------------------------


def ratios(algorithm):
    """Ratios of every mini-batch of an epoch, before any step."""
    with torch.no_grad():
        return torch.cat([algorithm.policy_loss(batch)[2].exp() for batch in algorithm.batches(draws_of(algorithm))])


@pytest.mark.parametrize("preset", PRESETS)
def test_rule_4_the_ratio_is_1_before_the_first_step_of_every_iteration_and_after_a_load(
    make_fpo, bandit, collect, iterate, preset
):
    """With the weights' average at work too: an iteration ends with it, so the next one acts and begins by it."""
    changes = {"preset": preset, "ema_start": 5}
    algorithm = make_fpo(**changes)
    for _ in range(3):
        collect(algorithm, bandit)
        found = ratios(copy.deepcopy(algorithm))
        torch.testing.assert_close(found, torch.ones_like(found), atol=1e-6, rtol=0)
        iterate(algorithm, bandit)
    assert algorithm.policy.normalizer.count == 3 * 128
    resumed = make_fpo(seed=9, **changes)
    resumed.load_checkpoint(algorithm.create_checkpoint().copy())
    collect(resumed, bandit)
    found = ratios(resumed)
    torch.testing.assert_close(found, torch.ones_like(found), atol=1e-6, rtol=0)


def the_same_flow(algorithm, features, frames, rows, calls):
    """The states of the flow, which NumPy went through when it acted, by the velocities that learning begins with."""
    (((seen, x, noise, steps), states),) = calls
    torch.testing.assert_close(seen, features, atol=1e-6, rtol=0)
    again = DenoisingPolicy.forward(algorithm.policy, features, x, noise, steps)
    torch.testing.assert_close(again, states, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(frames.sample["chunk"][rows], states[-1])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("loaded", [False, True])
def test_rule_4_learning_sees_what_the_policy_saw_and_computed_when_it_acted(
    make_fpo, compare_acting_with_learning, preset, loaded
):
    compare_acting_with_learning(make_fpo, "forward", the_same_flow, loaded, preset=preset, ema_start=5)


def test_rule_4_draws_are_made_once_an_iteration_and_their_losses_by_the_weights_that_acted(
    make_fpo, bandit, collect, monkeypatch
):
    algorithm = make_fpo(ratio="per-sample", update_epochs=2)
    collect(algorithm, bandit)
    before, seen = copy.deepcopy(algorithm.policy), []
    original = algorithm._step

    def step(batch):
        seen.append(batch)
        return original(batch)

    monkeypatch.setattr(algorithm, "_step", step)
    algorithm.learn()
    assert len(seen) == 8
    epochs = [{tuple(row.tolist()) for batch in epoch for row in batch.time} for epoch in (seen[:4], seen[4:])]
    assert epochs[0] == epochs[1]
    assert len(epochs[0]) == 128
    algorithm.policy = before  # its normaliser has not moved either
    with torch.no_grad():
        for batch in seen:
            torch.testing.assert_close(algorithm.flow_losses(batch), batch.old_loss, atol=1e-6, rtol=1e-6)


# Learning --------------------------------------------------------------------------------------------------------


def test_only_its_own_networks_get_gradients(make_fpo):
    algorithm = make_fpo()
    loss, _, _ = algorithm.policy_loss(random_batch(horizon=1, numbers=1))
    algorithm.optimizer.zero_grad()
    torch.autograd.backward(loss)
    assert all(parameter.grad.abs().max() > 0 for parameter in algorithm.policy.actor_parameters())
    assert all(parameter.grad.abs().max() == 0 for parameter in algorithm.policy.critic_parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_a_mini_batch_of_one_has_no_nan(make_fpo, make_bandit, iterate, preset):
    algorithm = make_fpo(preset=preset, buffer_size=33, batch_size=32, update_epochs=2)
    (metrics,) = iterate(algorithm, make_bandit(1))
    assert all(np.isfinite(value) for value in metrics.values())
    assert all(torch.isfinite(parameter).all() for parameter in algorithm.policy.parameters())


def test_the_critic_can_learn_alone_first(make_fpo, bandit, iterate):
    algorithm = make_fpo(critic_warmup_iterations=1)
    before = copy.deepcopy(algorithm.policy)
    iterate(algorithm, bandit)
    unchanged = zip(before.actor_parameters(), algorithm.policy.actor_parameters(), strict=True)
    assert all(torch.equal(old, new) for old, new in unchanged)
    assert not torch.equal(next(iter(before.critic_parameters())), next(iter(algorithm.policy.critic_parameters())))
    iterate(algorithm, bandit)
    assert not torch.equal(next(iter(before.actor_parameters())), next(iter(algorithm.policy.actor_parameters())))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_actor_s_first_step_after_the_warm_up_is_no_larger_than_its_rate(make_fpo, warm_up_and_step, preset):
    warm_up_and_step(make_fpo(preset=preset, critic_warmup_iterations=1))


def test_an_epoch_above_the_target_kl_is_the_last(make_fpo, bandit, iterate):
    algorithm = make_fpo(target_kl=1e-9, learning_rate=1e-2)
    iterate(algorithm, bandit)
    assert algorithm.updates == 4
    algorithm.config.target_kl = 1e9
    iterate(algorithm, bandit)
    assert algorithm.updates == 4 + 16


def test_an_iteration_ends_with_the_average_of_the_weights_after_each_step(make_fpo, bandit, collect, monkeypatch):
    algorithm = make_fpo(ema_decay=0.9, ema_start=3, update_epochs=2)
    collect(algorithm, bandit)
    weights, original = [], algorithm._step

    def step(batch):
        metrics = original(batch)
        weights.append(algorithm.optimizer.weights(0).clone())
        return metrics

    monkeypatch.setattr(algorithm, "_step", step)
    algorithm.learn()
    expected = weights[3]
    for later in weights[4:]:
        expected = 0.9 * expected + 0.1 * later
    found = torch.cat([parameter.detach().reshape(-1) for parameter in algorithm.policy.actor_parameters()])
    torch.testing.assert_close(found, expected)
    assert algorithm.updates == 8


def test_rule_6_the_device_is_not_waited_for_in_every_mini_batch(make_fpo, waits_of_an_update):
    few, many = (waits_of_an_update(make_fpo(batch_size=size, target_kl=1e9)) for size in (64, 8))
    assert few == many > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rule_7_narrow_weights_learn_through_float32_masters(make_fpo, bandit, iterate, dtype):
    algorithm = make_fpo(policy={"dtype": dtype}, preset=FPOPlusPlusConfig, ema_start=0, learning_rate=1e-5)
    before = algorithm.optimizer.weights(0).clone()
    iterate(algorithm, bandit, 2)
    after = algorithm.optimizer.weights(0)
    assert 0 < (after - before).abs().max() < 1e-3  # below what a bfloat16 near 1 tells apart
    weights = list(algorithm.policy.actor_parameters())
    assert {weight.dtype for weight in weights} == {getattr(torch, dtype)}
    rounded = torch.cat([weight.detach().reshape(-1) for weight in weights])
    assert torch.equal(rounded, after.to(rounded.dtype))


def test_it_refuses_a_policy_without_a_flow():
    with pytest.raises(ConfigError, match="needs a flow policy such as fpo-policy, got DummyPolicy"):
        FPO(FPOConfig(), DummyPolicy(DummyPolicyConfig()))


def test_rule_8_a_configuration_that_can_never_learn_is_refused(make_fpo):
    with pytest.raises(ConfigError, match=r"buffer-size 983040 is larger than --algo\.global-steps 150000"):
        make_fpo(buffer_size=983_040, global_steps=150_000)
