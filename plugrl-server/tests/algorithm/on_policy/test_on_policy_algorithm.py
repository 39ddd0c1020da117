"""The plumbing of on-policy algorithms, with one that learns the least possible: a critic over states and images."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.on_policy.on_policy_algorithm import OnPolicyAlgorithm, explained_variance, normalized
from plugrl_server.algorithm.on_policy.on_policy_config import OnPolicyConfig
from plugrl_server.common.checkpoint_manager import CheckpointError, CheckpointManager
from plugrl_server.learning import trees
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.encoders.observation_config import ObservationConfig
from plugrl_server.policy.encoders.observation_reader import ReadsObservations
from torch import nn

GAMMA, LAMBDA = 0.99, 0.95


class Policy(ReadsObservations):
    """Acts by noise; its value is linear in the state and the brightness of the image."""

    def __init__(self, config):
        super().__init__(config)
        self.actor = nn.Linear(1, 1)
        self.critic = nn.Linear(2 if self.image_keys else 1, 1)

    def get_action_and_runtime_state(self, obs):
        sample = self.rng.standard_normal((len(obs["text"]), 1)).astype(np.float32)
        return sample[:, None], {"sample": sample}

    def value(self, features):
        if self.image_keys:
            brightness = features["images"]["eye"].float().mean((1, 2, 3))[:, None]
            features = torch.cat([features["states"], brightness / 255], 1)
        return self.critic(features).squeeze(-1)


class Regression(OnPolicyAlgorithm):
    def make_optimizer(self):
        groups = (self.policy.actor, self.policy.critic)
        return FlatAdam(
            [Group(list(g.parameters()), rate) for g, rate in zip(groups, self.learning_rates(), strict=True)]
        )

    def update(self, frames):
        for _ in range(self.config.update_epochs):
            for batch in self.batches(frames):
                loss = (self.policy.value(batch.features) - batch.returns).square().mean()
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                self.optimizer.step(self.config.max_grad_norm)
        return {"losses/value_loss": float(loss.detach())}

    def extra_state(self):
        return {"note": self.global_step}

    def load_extra_state(self, state):
        self.note = state["note"]


def make(seed=0, images=False, **changes):
    seed_everything(seed)
    shapes = {"image_keys": ("eye",), "image_shapes": {"eye": (36, 36, 1)}} if images else {}
    policy = Policy(ObservationConfig(obs_dim=1, device="cpu", **shapes))
    sizes = {"global_steps": 100_000, "buffer_size": 8, "batch_size": 4, "update_epochs": 2, "normalize_rewards": False}
    return Regression(OnPolicyConfig(**{**sizes, **changes}), policy)


def observation(*values, images=False):
    pixels = np.clip(np.abs(np.array(values)), 0, 255).astype(np.uint8)[:, None, None, None]
    seen = {"eye": np.broadcast_to(pixels, (len(values), 36, 36, 1))} if images else {}
    return {"images": seen, "states": {"s": np.array(values, float)[:, None]}, "text": np.full(len(values), "")}


def message(values, next_values, reward, nodes, terminated=(), truncated=(), images=False):
    """Feedback of len(values) environments, their states one number each."""
    m = len(values)
    return FeedbackRows(
        obs=observation(*values, images=images),
        runtime_state=None,
        train_state=np.array(values, np.float32)[:, None],
        terminated=np.zeros(m, bool),
        truncated=np.zeros(m, bool),
        next_obs=observation(*next_values, images=images),
        reward=np.array(reward, np.float32),
        info=[{"episode": {"r": float(r)}} for r in reward],
        next_terminated=np.isin(np.arange(m), terminated),
        next_truncated=np.isin(np.arange(m), truncated),
        nodes=list(nodes),
    )


def value_of(algorithm, state, images=False):
    policy = algorithm.policy
    with torch.no_grad():
        return policy.value(policy.features(policy.observe(observation(state, images=images)))).item()


def frames_of(algorithm):
    return algorithm.frames(algorithm.rollout.stored())[0]


def fill(algorithm, start=0):
    """Terminated frames until the buffer is full; states and rewards are a function of the global step."""
    while not algorithm.should_learn():
        at = algorithm.global_step + start
        algorithm.feedback_rows(message([at % 7], [0], [at % 5], [NO_NODE], terminated=[0]))


# Storing ---------------------------------------------------------------------------------------------------------


def test_feedback_and_the_vectorised_hook_store_the_same():
    one, many = make(), make()
    rows = message([1, 2], [3, 4], [5, 6], [NO_NODE] * 2, truncated=[1])
    nodes = [one.feedback(**rows.row(i))[0] for i in range(2)]
    assert many.feedback_rows(rows) == 2
    assert nodes == rows.nodes
    assert one.global_step == many.global_step == 2
    assert one.episodes.metrics() == many.episodes.metrics() == {"rollout/reward": 6.0}
    for mine, theirs in zip(frames_of(one), frames_of(many), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_rows_beyond_a_full_buffer_are_not_taken():
    algorithm = make(buffer_size=5)
    rows = message([1, 2, 3], [4, 5, 6], [0, 0, 0], [NO_NODE] * 3)
    assert algorithm.feedback_rows(rows) == 3
    assert algorithm.feedback_rows(rows) == 2
    assert [slot for slot, _ in rows.nodes] == [3, 4, 2]
    assert algorithm.should_learn()
    assert algorithm.feedback_rows(rows) == 0
    assert algorithm.global_step == 5


def test_the_train_state_is_the_sample():
    assert make().example_train_state(3).shape == (3, 1)


def test_the_buffer_is_sized_by_example_train_state_before_the_first_frame(monkeypatch):
    """So who wants half the memory says so there; drawing the example leaves the policy's generator where it was."""
    algorithm = make()
    original, drawn = algorithm.example_train_state, algorithm.policy.rng_state()
    monkeypatch.setattr(algorithm, "example_train_state", lambda n: original(n).astype(np.float16))
    algorithm.init_optimizers()
    assert (algorithm.rollout.train_state.shape, algorithm.rollout.train_state.dtype) == ((8, 1), np.float16)
    assert algorithm.policy.rng_state() == drawn
    rows = message([1, 2], [3, 4], [0, 0], [NO_NODE] * 2)
    algorithm.feedback_rows(rows)
    stored = algorithm.rollout.stored().train_state
    assert stored.dtype == np.float16
    np.testing.assert_array_equal(stored, rows.train_state.astype(np.float16))


# Advantages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [False, True])
def test_rules_1_and_2_each_frame_s_own_outcome_bootstraps_or_not(images):
    """Environment 0 goes on, 1 terminates, 2 is truncated; then the buffer ends."""
    algorithm = make(images=images)
    ended = {"terminated": [1], "truncated": [2], "images": images}
    first = message([1, 2, 3], [4, 5, 6], [10, 20, 30], [NO_NODE] * 3, **ended)
    algorithm.feedback_rows(first)
    algorithm.feedback_rows(message([4, -5, -6], [7, 8, 9], [40, 50, 60], first.nodes, images=images))
    v = {state: value_of(algorithm, state, images) for state in (1, 2, 3, 4, -5, -6, 6, 7, 8, 9)}
    last = {4: 40 + GAMMA * v[7] - v[4], -5: 50 + GAMMA * v[8] - v[-5], -6: 60 + GAMMA * v[9] - v[-6]}
    expected = [
        10 + GAMMA * v[4] - v[1] + GAMMA * LAMBDA * last[4],
        20 - v[2],
        30 + GAMMA * v[6] - v[3],
        last[4],
        last[-5],
        last[-6],
    ]
    frames = frames_of(algorithm)
    assert frames.advantage.tolist() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(frames.returns, frames.advantage + frames.value)
    assert frames.sample[:, 0].tolist() == [1, 2, 3, 4, -5, -6]


def test_a_discarded_frame_is_a_cut_that_bootstraps():
    algorithm = make()
    algorithm.feedback_rows(message([1], [2], [10], [NO_NODE]))
    algorithm.feedback_rows(message([3], [4], [20], [NO_NODE]))
    expected = [10 + GAMMA * value_of(algorithm, 2), 20 + GAMMA * value_of(algorithm, 4)]
    assert frames_of(algorithm).returns.tolist() == pytest.approx(expected, rel=1e-5)


def test_rule_5_rewards_are_divided_by_the_deviation_of_the_return_which_spans_iterations():
    changes = {"normalize_rewards": True, "reward_scaling_gamma": 0.5, "gae_lambda": 0.0, "reward_scale": 3.0}
    algorithm = make(buffer_size=2, batch_size=2, update_epochs=1, **changes)
    nodes, sums = [NO_NODE], []
    for iteration in range(3):
        for _ in range(2):
            rows = message([0], [0], [1 + iteration], nodes)
            algorithm.feedback_rows(rows)
            nodes = rows.nodes
            sums.append((sums[-1] if sums else 0) * 0.5 + 1 + iteration)
        v = value_of(algorithm, 0)
        rewards = frames_of(copy.deepcopy(algorithm)).advantage - GAMMA * v + v
        assert rewards.tolist() == pytest.approx([3 * (1 + iteration) / np.std(sums)] * 2, rel=1e-3)
        algorithm.learn()
    assert algorithm.return_normalizer.count == 6


def test_rewards_can_be_left_alone_or_scaled():
    algorithm = make(buffer_size=2, batch_size=2, gamma=0.0, reward_scale=10.0)
    algorithm.feedback_rows(message([1, 2], [3, 4], [100.0, 200.0], [NO_NODE] * 2))
    assert frames_of(algorithm).returns.tolist() == pytest.approx([1000, 2000])
    assert algorithm.return_normalizer.count == 0


@pytest.mark.parametrize(
    ("advantage", "expected"), [([5.0], [5.0]), ([1.0, 3.0], [-(0.5**0.5), 0.5**0.5]), ([2.0, 2.0], [0, 0])]
)
def test_advantages_are_normalised_but_a_single_one(advantage, expected):
    assert normalized(torch.tensor(advantage)).tolist() == pytest.approx(expected, abs=1e-5)


# Learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [False, True])
def test_mini_batches_are_a_shuffle_of_all_frames(images):
    algorithm = make(images=images, batch_size=3)
    algorithm.feedback_rows(message(range(8), range(1, 9), range(8), [NO_NODE] * 8, images=images))
    frames = frames_of(algorithm)
    batches = list(algorithm.batches(frames))
    assert [len(batch.value) for batch in batches] == [3, 3, 2]
    seen = torch.cat([batch.sample[:, 0] for batch in batches]).long()
    assert sorted(seen.tolist()) == list(range(8))
    assert seen.tolist() != list(range(8))
    whole = trees.concat(batches)
    trees.map_leaves(torch.testing.assert_close, whole, trees.take(frames, seen))


def test_learning_rates_fall_to_0_over_the_run():
    algorithm = make(global_steps=32, anneal_learning_rate=True, learning_rate=0.1, critic_learning_rate=0.2)
    rates = []
    for _ in range(4):
        fill(algorithm)
        rates.append(algorithm.learn()[1]["losses/learning_rate"])
        assert algorithm.optimizer.groups[1].learning_rate == pytest.approx(2 * rates[-1])
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert algorithm.should_stop()


def test_the_normaliser_moves_after_the_update():
    algorithm = make(images=True)
    algorithm.feedback_rows(message(range(8), range(1, 9), range(8), [NO_NODE] * 8, images=True))
    assert algorithm.policy.normalizer.count == 0
    algorithm.learn()
    assert algorithm.policy.normalizer.count == 8
    assert algorithm.policy.normalizer.mean.tolist() == [3.5]
    assert not algorithm.should_learn()


def test_explained_variance():
    returns = torch.tensor([1.0, 2, 3])
    assert explained_variance(returns, returns) == {"losses/explained_variance": 1.0}
    assert explained_variance(torch.zeros(3), returns) == {"losses/explained_variance": 0.0}
    assert explained_variance(returns, torch.ones(3)) == {}


# State -----------------------------------------------------------------------------------------------------------


def everything(algorithm):
    """All state as bytes."""
    checkpoint = algorithm.create_checkpoint()
    moments = [(g["step"], g["first_moment"], g["second_moment"]) for g in checkpoint.optimizer["groups"]]
    kept = [checkpoint.model, moments, checkpoint.meta["return_normalizer"], checkpoint.step]
    return trees.map_leaves(lambda leaf: leaf.numpy().tobytes() if torch.is_tensor(leaf) else leaf, kept)


@pytest.mark.parametrize("extra", [0, 3])
def test_rule_9_iterations_after_a_resume_are_byte_identical(tmp_path, extra):
    algorithm = make(normalize_rewards=True)
    for _ in range(2):
        fill(algorithm)
        algorithm.learn()
    for i in range(extra):
        algorithm.feedback_rows(message([i], [0], [i], [NO_NODE], terminated=[0]))
    manager = CheckpointManager(tmp_path)
    manager.save(algorithm.create_checkpoint())
    resumed = make(seed=77, normalize_rewards=True)
    resumed.load_checkpoint(manager.load())
    assert resumed.global_step == resumed.note == 16 + extra
    for run in (algorithm, resumed):
        for _ in range(2):
            fill(run)
            run.learn()
    assert everything(resumed) == everything(algorithm)


def test_checkpoints_are_due_every_save_interval():
    algorithm = make(save_interval=2)
    saves = []
    for _ in range(5):
        fill(algorithm)
        algorithm.learn()
        saves.append(algorithm.should_save())
        if saves[-1]:
            algorithm.create_checkpoint()
    assert saves == [False, True, False, True, False]


def test_lesson_22_a_checkpoint_of_another_configuration_is_refused():
    algorithm = make()
    checkpoint = algorithm.create_checkpoint()
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        make(images=True).load_checkpoint(checkpoint)
    for part in ("extra", "rng", "iteration"):
        meta = {name: value for name, value in checkpoint.meta.items() if name != part}
        with pytest.raises(CheckpointError, match=f"has no '{part}': another algorithm, or another version"):
            make().load_checkpoint(dataclasses.replace(checkpoint, meta=meta))
