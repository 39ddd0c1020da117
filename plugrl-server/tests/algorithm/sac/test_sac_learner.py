"""The mathematics of SAC against literal transcriptions, with fixed noise."""

import copy

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.algorithm.sac.sac_learner import SACLearner, actor_loss, alpha_loss, critic_loss, soft_target
from plugrl_server.learning.replay_buffer import Batch
from plugrl_server.policy.sac.sac_policy import SACPolicy
from plugrl_server.policy.sac.sac_policy_config import SACPolicyConfig


def make_learner(seed=0, policy=(), **changes):
    torch.manual_seed(seed)
    sizes = {"obs_dim": 3, "action_dim": 2, "device": "cpu", "hidden_sizes": (16, 16)}
    made = SACPolicy(SACPolicyConfig(**{**sizes, **dict(policy)}))
    return SACLearner(SACConfig(**{"batch_size": 8, **changes}), made)


def make_batch(n=8, seed=1, terminated=None, numbers=2):
    rng = np.random.default_rng(seed)
    flags = rng.random(n) < 0.3 if terminated is None else np.array(terminated)
    obs, next_obs = rng.standard_normal((2, n, 3)).astype(np.float32)
    chunks = rng.uniform(-1, 1, (n, numbers)).astype(np.float32)
    return Batch(obs, chunks, rng.standard_normal(n).astype(np.float32), next_obs, flags, ~flags)


# The formulae in NumPy, one sample and one network at a time ------------------------------------------------------


def numpy_mlp(weights, biases, values):
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        values = values @ weight + bias
        values = np.maximum(values, 0) if i + 1 < len(weights) else values
    return values


def numpy_actor(policy, obs):
    layers = [layer for layer in policy.actor if hasattr(layer, "weight")]
    arrays = [(layer.weight.detach().double().numpy().T, layer.bias.detach().double().numpy()) for layer in layers]
    outputs = numpy_mlp(*zip(*arrays, strict=True), obs)
    half = len(outputs) // 2
    return outputs[:half], -5 + 0.5 * (2 - -5) * (np.tanh(outputs[half:]) + 1)


def numpy_sample(policy, obs, noise):
    mean, log_std = numpy_actor(policy, obs)
    u = mean + np.exp(log_std) * noise
    log_prob = 0.0
    for i in range(len(u)):
        log_prob += -0.5 * np.log(2 * np.pi) - log_std[i] - 0.5 * noise[i] ** 2
        log_prob -= 2 * (np.log(2) - u[i] - np.log1p(np.exp(-2 * u[i])))
    return np.tanh(u), log_prob


def numpy_q(critic, i, obs, chunk):
    weights = [weight[i].detach().double().numpy() for weight in critic.weights]
    biases = [bias[i, 0].detach().double().numpy() for bias in critic.biases]
    return numpy_mlp(weights, biases, np.concatenate([obs, chunk]))[0]


def numpy_losses(policy, batch, noise, next_noise, gamma, target_entropy):
    """The critics' loss, and the actor's and the temperature's, all for the same weights."""
    alpha = np.exp(policy.log_alpha.item())
    of_critics, of_actor, of_alpha = np.zeros(2), 0.0, 0.0
    n = len(batch.reward)
    for j in range(n):
        next_chunk, next_log_prob = numpy_sample(policy, batch.next_obs[j], next_noise[j])
        next_q = min(numpy_q(policy.target_critic, i, batch.next_obs[j], next_chunk) for i in range(2))
        y = batch.reward[j]
        if not batch.terminated[j]:
            y += gamma * (next_q - alpha * next_log_prob)
        for i in range(2):
            of_critics[i] += (numpy_q(policy.critic, i, batch.obs[j], batch.action[j]) - y) ** 2 / n
        chunk, log_prob = numpy_sample(policy, batch.obs[j], noise[j])
        of_actor += (alpha * log_prob - min(numpy_q(policy.critic, i, batch.obs[j], chunk) for i in range(2))) / n
        of_alpha += -alpha * (log_prob + target_entropy) / n
    return of_critics.sum(), of_actor, of_alpha


def scattered(learner):
    """The learner with targets that differ from their critics and a temperature that is not 1."""
    with torch.no_grad():
        learner.targets.master.mul_(0.7)
        learner.policy.log_alpha.fill_(-0.4)
    return learner


def test_losses_are_the_literal_formulae():
    learner, batch = scattered(make_learner()), make_batch()
    policy = learner.policy
    noise, next_noise = np.random.default_rng(2).standard_normal((2, 8, 2)).astype(np.float32)
    features, next_features = policy.features(batch.obs), policy.features(batch.next_obs)
    with torch.no_grad():
        alpha = policy.log_alpha.exp()
        next_chunks, next_log_prob = policy.sample(next_features, torch.from_numpy(next_noise))
        next_q = policy.target_q_values(next_features, next_chunks)
        terminated = torch.from_numpy(batch.terminated).float()
        y = soft_target(torch.from_numpy(batch.reward), terminated, next_q, next_log_prob, alpha, 0.9)
        of_critics = critic_loss(policy.q_values(features, torch.from_numpy(batch.action)), y)
        chunks, log_prob = policy.sample(features, torch.from_numpy(noise))
        of_actor = actor_loss(log_prob, policy.q_values(features, chunks), alpha)
        of_alpha = alpha_loss(policy.log_alpha, log_prob, -2.0)
    expected = numpy_losses(policy, batch, noise, next_noise, 0.9, -2.0)
    np.testing.assert_allclose([of_critics.item(), of_actor.item(), of_alpha.item()], expected, rtol=1e-5)


def test_an_update_takes_these_losses(monkeypatch):
    """The learner's own report of its first update, for noise that is known."""
    learner, batch = scattered(make_learner(gamma=0.9, policy_frequency=1, tau=0.5)), make_batch()
    noises = iter(np.random.default_rng(2).standard_normal((2, 8, 2)).astype(np.float32))
    monkeypatch.setattr(learner, "_noise", lambda n: torch.from_numpy(next(noises)[:n]))
    before = copy.deepcopy(learner.policy)
    learner.learn_from(batch)
    told = learner.metrics()
    next_noise, noise = np.random.default_rng(2).standard_normal((2, 8, 2)).astype(np.float32)
    of_critics, _, of_alpha = numpy_losses(before, batch, noise, next_noise, 0.9, -2.0)
    assert told["losses/critic_loss"] == pytest.approx(of_critics, rel=1e-5)
    assert told["losses/alpha_loss"] == pytest.approx(of_alpha, rel=1e-5)
    after = copy.deepcopy(before)  # the actor is rated by critics that have learned already
    after.critic.load_state_dict(learner.policy.critic.state_dict())
    assert told["losses/actor_loss"] == pytest.approx(
        numpy_losses(after, batch, noise, next_noise, 0.9, -2.0)[1], rel=1e-5
    )
    middle = [
        (old + new) / 2 for old, new in zip(before.target_parameters(), learner.policy.critic_parameters(), strict=True)
    ]
    torch.testing.assert_close(list(learner.policy.target_parameters()), middle)


def test_gradients_go_where_they_should():
    learner = make_learner(policy_frequency=1)
    before = copy.deepcopy(learner.policy.state_dict())
    learner._update_critic(learner.policy.features(make_batch().obs), make_batch())
    changed = {name for name, value in learner.policy.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in changed} == {"critic"}
    before = copy.deepcopy(learner.policy.state_dict())
    critics = copy.deepcopy([parameter.grad for parameter in learner.policy.critic_parameters()])
    learner._update_actor(learner.policy.features(make_batch().obs))
    changed = {name for name, value in learner.policy.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in changed} == {"actor", "log_alpha"}
    torch.testing.assert_close([parameter.grad for parameter in learner.policy.critic_parameters()], critics)


def test_every_second_update_moves_the_actor_twice(monkeypatch):
    learner = make_learner(policy_frequency=2)
    calls = []
    monkeypatch.setattr(learner, "_update_actor", lambda features: calls.append(learner.updates))
    for _ in range(5):
        learner.learn_from(make_batch())
    assert calls == [2, 2, 4, 4]


@pytest.mark.parametrize(("log_std", "rises"), [(-4.0, True), (0.0, False)])
def test_the_temperature_moves_towards_the_target_entropy(log_std, rises):
    """A policy of less entropy than the target makes it dearer, one of more makes it cheaper."""
    learner = make_learner(policy_frequency=1)
    last = learner.policy.actor[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias[:2] = 0
        last.bias[2:] = torch.atanh(torch.tensor((log_std + 5) / 3.5 - 1))
    learner.learn_from(make_batch())
    entropy = learner.metrics()["losses/entropy"]
    assert (entropy < learner.target_entropy) == rises
    assert (learner.policy.log_alpha.item() > 0) == rises


def test_the_temperature_can_be_fixed():
    learner = make_learner(autotune=False, alpha=0.2, policy_frequency=1)
    learner.learn_from(make_batch())
    assert learner.policy.log_alpha.exp().item() == pytest.approx(0.2)


def test_the_target_entropy_is_minus_the_numbers_of_a_chunk():
    assert make_learner(policy={"action_horizon": 3}).target_entropy == -6
    assert make_learner(target_entropy=1.5).target_entropy == 1.5
    learner = make_learner(policy={"action_horizon": 3}, policy_frequency=1)
    learner.learn_from(make_batch(numbers=6))
    assert np.isfinite(list(learner.metrics().values())).all()


def test_rule_2_truncation_bootstraps_and_termination_does_not():
    reward, next_q = torch.tensor([1.0, 1.0]), torch.tensor([[10.0, 10.0], [20.0, 5.0]])
    log_prob, alpha = torch.tensor([-2.0, -2.0]), torch.tensor(0.5)
    targets = soft_target(reward, torch.tensor([0.0, 1.0]), next_q, log_prob, alpha, 0.9)
    assert targets.tolist() == pytest.approx([1 + 0.9 * 11, 1.0])
    # Through the learner: what follows a terminated frame does not matter, what follows a truncated one does.
    for terminated, matters in ((True, False), (False, True)):
        batch = make_batch(terminated=[terminated] * 8)
        losses = []
        for shift in (0, 5):
            learner = make_learner()
            learner.learn_from(batch._replace(next_obs=batch.next_obs + np.float32(shift)))
            losses.append(learner.metrics()["losses/critic_loss"])
        assert (losses[0] != losses[1]) == matters


def test_rule_6_an_update_does_not_wait_for_the_device(device_waits):
    learner, batch = make_learner(), make_batch()
    device_waits.clear()
    for _ in range(4):
        learner.learn_from(batch)
    assert device_waits == []
    assert learner.metrics()
    assert device_waits, "they are noticed where there are any"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rule_7_narrow_weights_are_trained_through_float32(dtype):
    """An update of 1e-6 is far below their resolution, and still adds up: in the actor, critics and targets."""
    learner = make_learner(policy={"dtype": dtype}, learning_rate=1e-6, critic_learning_rate=1e-6)
    masters = learner.actor_optimizer.weights(0), learner.critic_optimizer.weights(0), learner.targets.master
    before = [master.clone() for master in masters]
    for seed in range(20):
        learner.learn_from(make_batch(seed=seed))
    for master, old in zip(masters, before, strict=True):
        assert master.dtype == torch.float32
        assert 0 < (master - old).abs().max() < 1e-4
    flat = torch.cat([parameter.reshape(-1) for parameter in learner.policy.critic_parameters()])
    assert flat.dtype == getattr(torch, dtype)
    torch.testing.assert_close(flat, learner.critic_optimizer.weights(0).to(flat.dtype))


def test_a_normaliser_moves_as_frames_come():
    learner = make_learner(policy={"normalize_observations": True})
    batch = make_batch()
    frames = {name: getattr(batch, name) for name in ("obs", "next_obs", "action", "reward", "terminated", "truncated")}
    learner.add(**frames, nodes=[(-1, "")] * 8)
    assert learner.policy.normalizer.count == 8
    torch.testing.assert_close(learner.policy.features(batch.obs).mean(0), torch.zeros(3), atol=1e-6, rtol=0)


def test_images_are_learned_from():
    shapes = {"image_keys": ("eye",), "image_shapes": {"eye": (36, 36, 3)}, "image_encoder": "impala-small"}
    learner = make_learner(policy=shapes, policy_frequency=1)
    batch, rng = make_batch(), np.random.default_rng(0)
    eyes = rng.integers(0, 255, (2, 8, 36, 36, 3), np.uint8)
    obs, next_obs = (
        {"states": s, "images": {"eye": e}} for s, e in zip((batch.obs, batch.next_obs), eyes, strict=True)
    )
    frames = {
        "action": batch.action,
        "reward": batch.reward,
        "terminated": ~batch.truncated,
        "truncated": batch.truncated,
    }
    learner.add(obs=obs, next_obs=next_obs, **frames, nodes=[(-1, "")] * 8)
    encoder = copy.deepcopy(learner.policy.encoder.state_dict())
    learner.update(2)
    assert all(not torch.equal(value, encoder[name]) for name, value in learner.policy.encoder.state_dict().items())
    assert np.isfinite(list(learner.metrics().values())).all()
