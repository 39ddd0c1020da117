"""The cosine schedule against the formulae of its papers, one step at a time."""

import math

import numpy as np
import pytest
from plugrl_server.policy.diffusion.cosine_schedule import posterior


def literal(num_steps):
    """Nichol and Dhariwal's eq. 17, and Ho et al.'s eqs. 7 and 15, for t = T .. 1."""

    def f(t):
        return math.cos((t / num_steps + 0.008) / 1.008 * math.pi / 2) ** 2

    beta = [min(1 - f(t) / f(t - 1), 0.999) for t in range(1, num_steps + 1)]
    rows = []
    for t in range(1, num_steps + 1):
        bar = math.prod(1 - b for b in beta[:t])
        before = math.prod(1 - b for b in beta[: t - 1])
        b = beta[t - 1]
        rows.append(
            (
                math.sqrt(1 / bar),
                math.sqrt(1 / bar - 1),
                math.sqrt(before) * b / (1 - bar),
                math.sqrt(1 - b) * (1 - before) / (1 - bar),
                math.sqrt((1 - before) / (1 - bar) * b),
            )
        )
    return np.array(rows[::-1])


@pytest.mark.parametrize("num_steps", [1, 5, 20, 100])
def test_coefficients_are_the_literal_formulae(num_steps):
    np.testing.assert_allclose(np.stack(posterior(num_steps), -1), literal(num_steps), rtol=1e-9, atol=1e-12)


def test_the_last_step_returns_the_denoised_chunk_and_adds_nothing():
    steps = posterior(20)
    assert steps.mean_of_denoised[-1] == pytest.approx(1)
    assert steps.mean_of_state[-1] == pytest.approx(0)
    assert steps.std[-1] == 0


def test_the_first_step_sees_next_to_no_signal():
    assert 1 / posterior(20).of_state[0] < 0.01
