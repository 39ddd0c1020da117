"""What the tests of several algorithms share: rounds of a bandit, learn steps, and a resume.

A package says by `make_bandit` which bandit its algorithm plays; the bandit itself must be importable by name.
"""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from plugrl_server.common.checkpoint_manager import CheckpointManager

sys.path.insert(0, str(Path(__file__).parent))


def _collect(algorithm, bandit):
    while not algorithm.should_learn():
        algorithm.feedback_rows(bandit.rows(algorithm))


def _iterations(algorithm, bandit, n=1):
    metrics = []
    for _ in range(n):
        _collect(algorithm, bandit)
        algorithm.pre_learn()
        metrics.append(algorithm.learn()[1])
        algorithm.post_learn()
    return metrics


def _everything(algorithm):
    checkpoint = algorithm.create_checkpoint()
    model = {name: value.numpy().tobytes() for name, value in checkpoint.model.items()}
    optimizer = [
        (group["step"], group["first_moment"].numpy().tobytes(), group["second_moment"].numpy().tobytes())
        for group in checkpoint.optimizer["groups"]
    ]
    scale = {name: value.item() for name, value in checkpoint.meta["return_normalizer"].items()}
    return model, optimizer, scale, checkpoint.step, checkpoint.meta["iteration"], checkpoint.meta["extra"]


@pytest.fixture
def bandit(make_bandit):
    return make_bandit()


@pytest.fixture
def collect():
    """`collect(algorithm, bandit)`: fill the buffer."""
    return _collect


@pytest.fixture
def iterations():
    """`iterations(algorithm, bandit, n=1)`: n iterations; returns the metrics of each."""
    return _iterations


@pytest.fixture
def iterate():
    """`iterate(algorithm, bandit, n=1)`: n iterations; returns the last one's metrics."""
    return lambda algorithm, bandit, n=1: _iterations(algorithm, bandit, n)[-1]


@pytest.fixture
def everything():
    """`everything(algorithm)`: all state of an on-policy algorithm as bytes."""
    return _everything


@pytest.fixture
def warm_up_and_step(bandit, monkeypatch):
    """`warm_up_and_step(algorithm)`: an iteration of the critic's alone, and the actor's first real step after it.

    Adam's first step is as large as its learning rate, where none was counted before.
    """

    def check(algorithm):
        optimizer, moves = algorithm.optimizer, []
        before = optimizer.weights(0).clone()
        _iterations(algorithm, bandit)
        steps = [group["step"] for group in optimizer.state_dict()["groups"]]
        assert steps[0] == 0 < steps[1]
        assert torch.equal(optimizer.weights(0), before)
        original = optimizer.step

        def step(*args):
            old = optimizer.weights(0).clone()
            original(*args)
            moves.append((optimizer.weights(0) - old).abs().max().item())

        monkeypatch.setattr(optimizer, "step", step)
        _iterations(algorithm, bandit)
        assert moves[0] == pytest.approx(optimizer.groups[0].learning_rate, rel=1e-2)
        assert optimizer.state_dict()["groups"][0]["step"] == len(moves)

    return check


@pytest.fixture
def go_on_and_resume(bandit, make_bandit, tmp_path):
    """`go_on_and_resume(make, rounds, **changes)`: a run of five iterations, and one resumed from its checkpoint.

    The checkpoint goes through the disk; it is taken `rounds` rounds after the second iteration. The resumed process
    starts from another seed. Both runs are compared byte by byte, and returned.
    """

    def compare(make, rounds, **changes):
        algorithm = make(**changes)
        _iterations(algorithm, bandit, 2)
        for _ in range(rounds):
            algorithm.feedback_rows(bandit.rows(algorithm))
        manager = CheckpointManager(tmp_path)
        manager.save(algorithm.create_checkpoint())
        resumed_bandit = make_bandit()
        resumed_bandit.round = bandit.round
        first = _iterations(algorithm, bandit, 3)

        resumed = make(seed=77, **changes)
        resumed.load_checkpoint(manager.load())
        assert resumed.global_step == 2 * 128 + rounds * 16
        second = _iterations(resumed, resumed_bandit, 3)
        assert _everything(resumed) == _everything(algorithm)
        losses = [
            [{name: value for name, value in metrics.items() if "losses" in name} for metrics in run]
            for run in (first, second)
        ]
        assert losses[0] == losses[1]
        obs = bandit.observation()
        np.testing.assert_array_equal(algorithm.infer(obs)[0], resumed.infer(obs)[0])
        return algorithm, resumed

    return compare


def _act(algorithm, bandit, method, rounds, monkeypatch):
    """Play rounds (None: until the buffer is full); returns of each what `policy.method` took and gave in it."""
    original, messages = getattr(algorithm.policy, method), []

    def record(*args):
        output = original(*args)
        messages[-1].append(copy.deepcopy((args, output)))  # some are changed in place afterwards
        return output

    with monkeypatch.context() as patch:
        patch.setattr(algorithm.policy, method, record)
        while not algorithm.should_learn() and len(messages) != rounds:
            messages.append([])
            algorithm.feedback_rows(bandit.rows(algorithm))
    return messages


@pytest.fixture
def compare_acting_with_learning(bandit, monkeypatch):
    """`compare_acting_with_learning(make, method, compare, loaded, **changes)`: in the third iteration, for rule 4.

    `compare(algorithm, features, frames, rows, calls)` is called for each message when learning begins: with its
    features and its rows among the frames, and with (arguments, result) of each call of `policy.method` that acting
    made then. Where it is `loaded`, a checkpoint is taken in the middle of the iteration, and another process goes on.
    """

    def run(make, method, compare, loaded, **changes):
        algorithm = make(**changes)
        _iterations(algorithm, bandit, 2)
        messages = _act(algorithm, bandit, method, 3, monkeypatch)
        if loaded:
            checkpoint = algorithm.create_checkpoint().copy()
            algorithm = make(seed=9, **changes)
            algorithm.load_checkpoint(checkpoint)
        messages += _act(algorithm, bandit, method, None, monkeypatch)
        original, learned = algorithm.update, []

        def update(frames):
            with torch.no_grad():
                for start, calls in enumerate(messages):
                    rows = slice(start * bandit.n, (start + 1) * bandit.n)
                    compare(algorithm, frames.features[rows], frames, rows, calls)
            learned.append(len(frames.value))
            return original(frames)

        monkeypatch.setattr(algorithm, "update", update)
        _iterations(algorithm, bandit)
        assert learned == [len(messages) * bandit.n] == [128]

    return run


@pytest.fixture
def waits_of_an_update(bandit, device_waits):
    """`waits_of_an_update(algorithm)`: how often one update of a full buffer waits for the device (rule 6)."""

    def count(algorithm):
        _collect(algorithm, bandit)
        frames, _ = algorithm.frames(algorithm.rollout.stored())
        device_waits.clear()
        algorithm.update(frames)
        return len(device_waits)

    return count
