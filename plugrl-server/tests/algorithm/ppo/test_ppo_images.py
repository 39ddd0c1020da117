"""PPO on images beside states."""

import copy

import numpy as np
import torch


def test_critic_warm_up_leaves_a_shared_encoder_alone(make_ppo, seeing_bandit, iterate):
    algorithm = make_ppo(critic_warmup_iterations=1, policy=seeing_bandit.policy, buffer_size=32, update_epochs=1)
    before = copy.deepcopy(algorithm.policy.state_dict())
    iterate(algorithm, seeing_bandit)
    changed = {
        name for name, weights in algorithm.policy.state_dict().items() if not torch.equal(weights, before[name])
    }
    assert {name.split(".")[0] for name in changed} == {"critic", "normalizer"}
    iterate(algorithm, seeing_bandit)
    assert not torch.equal(
        before["encoder.images.0.layers.0.weight"], algorithm.policy.encoder.images[0].layers[0].weight
    )


def test_images_and_states_are_learned_from_together(make_ppo, seeing_bandit, collect):
    """A mini-batch holds the rows of its frames: the images' values, and gradients for both networks' inputs."""
    algorithm = make_ppo(policy=seeing_bandit.policy, buffer_size=32, batch_size=16, update_epochs=1)
    collect(algorithm, seeing_bandit)
    assert algorithm.rollout.obs["images"]["cam"].dtype == np.uint8
    samples = algorithm.samples(algorithm.frames(algorithm.rollout.stored())[0])
    rows = {tuple(row) for row in samples.features["images"]["cam"].flatten(1).tolist()}
    for batch in algorithm.batches(samples):
        assert {tuple(row) for row in batch.features["images"]["cam"].flatten(1).tolist()} <= rows
        log_prob, _, value = algorithm.policy.evaluate(batch.features, batch.sample)
        torch.testing.assert_close(value, batch.value, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close((log_prob - batch.log_prob).exp(), torch.ones(16), atol=1e-5, rtol=0)
    metrics = algorithm.learn()[1]
    assert all(np.isfinite(value) for value in metrics.values())
