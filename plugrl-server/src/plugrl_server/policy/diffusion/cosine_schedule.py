"""The cosine noise schedule (Nichol and Dhariwal 2021, eq. 17) as coefficients of the DDPM posterior."""

from typing import NamedTuple

import numpy as np

OFFSET = 0.008
MAX_BETA = 0.999


class Posterior(NamedTuple):
    """What each of K steps does to x_k, for k = 0 (noisiest) to K - 1; f8[K] each (Ho et al. 2020, eqs. 6, 7 and 15).

    Attributes:
        of_state: Weight of x_k in the denoised chunk: x0 = of_state x_k - of_noise eps.
        of_noise: Weight of the noise there.
        mean_of_denoised: Weight of x0 in the mean of x_{k+1}.
        mean_of_state: Weight of x_k there.
        std: Standard deviation of x_{k+1}.
    """

    of_state: np.ndarray
    of_noise: np.ndarray
    mean_of_denoised: np.ndarray
    mean_of_state: np.ndarray
    std: np.ndarray


def posterior(num_steps: int) -> Posterior:
    """Return the coefficients of a chain of `num_steps` steps."""
    time = np.arange(num_steps + 1) / num_steps
    signal = np.cos((time + OFFSET) / (1 + OFFSET) * np.pi / 2) ** 2
    beta = np.clip(1 - signal[1:] / signal[:-1], 0, MAX_BETA)
    alpha_bar = np.cumprod(1 - beta)
    before = np.concatenate([[1.0], alpha_bar[:-1]])
    coefficients = (
        np.sqrt(1 / alpha_bar),
        np.sqrt(1 / alpha_bar - 1),
        beta * np.sqrt(before) / (1 - alpha_bar),
        (1 - before) * np.sqrt(1 - beta) / (1 - alpha_bar),
        np.sqrt(beta * (1 - before) / (1 - alpha_bar)),
    )
    return Posterior(*(each[::-1] for each in coefficients))
