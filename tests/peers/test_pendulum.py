"""Both Pendulums are Gymnasium's, step by step."""

import math
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests.peers.processes import raw

TORQUES = [3.0 * math.sin(0.37 * step) for step in range(200)]  # beyond the limits too
STARTS = [(0.1, -0.5), (-3.1, 1.0), (3.0, 0.9)]


def gymnasium_steps(angle: float, speed: float) -> np.ndarray:
    """Rows of cos, sin, speed, reward. In float64 throughout: a float32 action would make it round."""
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    env.state = np.array([angle, speed])
    rows = []
    for torque in TORQUES:
        _, reward, terminated, truncated, _ = env.step(np.array([torque]))
        assert (terminated, truncated) == (False, False)
        rows.append([math.cos(env.state[0]), math.sin(env.state[0]), env.state[1], float(reward)])
    return np.array(rows)


def python_steps(angle: float, speed: float) -> tuple[np.ndarray, list[bool]]:
    env = raw.PendulumEnv(seed=0)
    env.angle, env.speed = angle, speed
    outcomes = [(env.step([torque]), env.states()["obs"]) for torque in TORQUES]
    assert not any(outcome.terminated for outcome, _ in outcomes)
    return np.array([[*obs, outcome.reward] for outcome, obs in outcomes]), [end.truncated for end, _ in outcomes]


def cpp_steps(harness: Path, angle: float, speed: float) -> tuple[np.ndarray, list[bool]]:
    text = " ".join(repr(number) for number in (angle, speed, *TORQUES))
    done = subprocess.run([harness, "pendulum"], input=text, capture_output=True, text=True, check=True, timeout=20)
    rows = np.array([line.split() for line in done.stdout.splitlines()], float)
    assert not rows[:, 4].any()
    return rows[:, :4], rows[:, 5].astype(bool).tolist()


@pytest.mark.parametrize(("angle", "speed"), STARTS)
def test_raw_client_steps_as_gymnasium_does(angle: float, speed: float) -> None:
    rows, truncated = python_steps(angle, speed)
    np.testing.assert_allclose(rows, gymnasium_steps(angle, speed), rtol=0, atol=1e-8)
    assert truncated == [False] * 199 + [True]


@pytest.mark.parametrize(("angle", "speed"), STARTS)
def test_plugrl_client_steps_as_gymnasium_does(harness: Path, angle: float, speed: float) -> None:
    rows, truncated = cpp_steps(harness, angle, speed)
    np.testing.assert_allclose(rows, gymnasium_steps(angle, speed), rtol=0, atol=1e-8)
    assert truncated == [False] * 199 + [True]


def test_limit_is_gymnasiums() -> None:
    spec = gymnasium.spec("Pendulum-v1")
    assert (raw.PendulumEnv.env_id, raw.PendulumEnv.limit) == (spec.id, spec.max_episode_steps)


def test_starts_anywhere_and_slowly() -> None:
    starts = [(env.angle, env.speed) for env in map(raw.PendulumEnv, range(500))]
    angles, speeds = np.array(starts).T
    assert -math.pi <= angles.min() < -3
    assert 3 < angles.max() <= math.pi
    assert np.abs(speeds).max() <= 1
    assert abs(angles.mean()) < 0.3
