"""Random generators: seeding a run, and keeping their states."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy's global generator and torch: everything built afterwards is a function of the seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - outside policies may draw from the global generator
    torch.manual_seed(seed)


def derived_generator(device: torch.device | str = "cpu") -> torch.Generator:
    """Return a new generator whose seed is drawn from torch's global one."""
    generator = torch.Generator(device)
    generator.manual_seed(int(torch.randint(2**62, ())))
    return generator


@contextlib.contextmanager
def preserved(policy: Any) -> Iterator[None]:
    """Leave torch's global generator and a policy's own as they were: for warm-ups and shape probes."""
    torch_state, policy_state = torch.get_rng_state(), policy.rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        if policy_state is not None:
            policy.load_rng_state(policy_state)


def rng_state(policy: Any, *generators: torch.Generator) -> Any:
    """Return the state of torch's global generator, the policy's own and an algorithm's, as a tree for a checkpoint."""
    return {
        "torch": torch.get_rng_state(),
        "policy": policy.rng_state(),
        "algorithm": [generator.get_state() for generator in generators],
    }


def load_rng_state(state: Any, policy: Any, *generators: torch.Generator) -> None:
    """Restore what `rng_state` returned for the same policy and generators."""
    torch.set_rng_state(state["torch"])
    policy.load_rng_state(state["policy"])
    for generator, of_generator in zip(generators, state["algorithm"], strict=True):
        generator.set_state(of_generator)
