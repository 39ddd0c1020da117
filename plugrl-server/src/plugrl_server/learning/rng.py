"""Random generators: seeding a run, and keeping their states."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import cuda


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
    """Leave the global generators and a policy's own as they were: for warm-ups and shape probes."""
    global_state, policy_state = _global_state(), policy.rng_state()
    try:
        yield
    finally:
        _load_global_state(global_state)
        if policy_state is not None:
            policy.load_rng_state(policy_state)


def rng_state(policy: Any, *generators: torch.Generator) -> Any:
    """Return the states of the global generators, the policy's own and an algorithm's, as a tree for a checkpoint."""
    return {
        **_global_state(),
        "policy": policy.rng_state(),
        "algorithm": [generator.get_state() for generator in generators],
    }


def load_rng_state(state: Any, policy: Any, *generators: torch.Generator) -> None:
    """Restore what `rng_state` returned for the same policy and generators."""
    _load_global_state(state)
    policy.load_rng_state(state["policy"])
    for generator, of_generator in zip(generators, state["algorithm"], strict=True):
        generator.set_state(of_generator)


def _global_state() -> dict[str, Any]:
    """Return the states of what `seed_everything` seeds: torch's generators (CUDA's, once it is used), and the others.

    Policies of outside may draw from any of them.
    """
    version, words, next_normal = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda.get_rng_state_all() if cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "python": {"version": version, "words": np.array(words, np.uint32), "next_normal": next_normal},
    }


def _load_global_state(state: dict[str, Any]) -> None:
    """Restore what `_global_state` returned; states that an older checkpoint lacks stay as they are."""
    torch.set_rng_state(state["torch"])
    for device, of_device in enumerate(state.get("cuda", [])[: cuda.device_count()]):
        cuda.set_rng_state(of_device, device)
    if "numpy" in state:
        np.random.set_state(state["numpy"])  # noqa: NPY002
    if "python" in state:
        python = state["python"]
        random.setstate((python["version"], tuple(python["words"].tolist()), python["next_normal"]))
