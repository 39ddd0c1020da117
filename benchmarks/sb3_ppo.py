"""One PPO run of Stable-Baselines3 in this process, and the hyper-parameters that both sides of the comparison use.

python benchmarks/sb3_ppo.py --env CartPole-v1 --iterations 5 --threads 1   # prints one line of JSON
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PPOSettings:
    """PPO's usual settings (Schulman 2017; CleanRL's continuous file), named as PlugRL names them."""

    num_envs: int = 8
    buffer_size: int = 2048  # frames of all envs together
    batch_size: int = 64
    update_epochs: int = 10
    learning_rate: float = 3e-4  # annealed to 0 over the run
    adam_eps: float = 1e-5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2  # of the ratio and of the value
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    hidden: tuple[int, int] = (64, 64)  # tanh, for the policy and for the value


SETTINGS = PPOSettings()


def run(env_id: str, iterations: int, threads: int, seed: int) -> list[tuple[int, float]]:
    """Train for `iterations` learn steps.

    Returns:
        (env steps, seconds of a monotonic clock) at the end of every learn step.
    """
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(threads)
    stamps: list[tuple[int, float]] = []

    class StampedPPO(PPO):
        def train(self) -> None:
            super().train()
            stamps.append((self.num_timesteps, time.perf_counter()))

    model = StampedPPO("MlpPolicy", _envs(env_id, seed), **_arguments(), seed=seed, device="cpu")
    model.learn(iterations * SETTINGS.buffer_size)
    return stamps


def _envs(env_id: str, seed: int) -> Any:
    """Eight envs in this process, observations and returns normalised as PlugRL's PPO does it."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    return VecNormalize(make_vec_env(env_id, n_envs=SETTINGS.num_envs, seed=seed), gamma=SETTINGS.gamma)


def _arguments() -> dict[str, Any]:
    import torch

    s = SETTINGS
    return {
        "n_steps": s.buffer_size // s.num_envs,
        "batch_size": s.batch_size,
        "n_epochs": s.update_epochs,
        "learning_rate": lambda remaining: remaining * s.learning_rate,
        "gamma": s.gamma,
        "gae_lambda": s.gae_lambda,
        "clip_range": s.clip_coef,
        "clip_range_vf": s.clip_coef,
        "ent_coef": s.ent_coef,
        "vf_coef": s.vf_coef,
        "max_grad_norm": s.max_grad_norm,
        "policy_kwargs": {
            "net_arch": {"pi": list(s.hidden), "vf": list(s.hidden)},
            "activation_fn": torch.nn.Tanh,
            "optimizer_kwargs": {"eps": s.adam_eps},
        },
    }


def main() -> None:
    """Run once and print the stamps."""
    parser = argparse.ArgumentParser(description="One PPO run of Stable-Baselines3.")
    parser.add_argument("--env", required=True, help="Gymnasium id")
    parser.add_argument("--iterations", type=int, required=True, help="number of learn steps")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps({"stamps": run(args.env, args.iterations, args.threads, args.seed)}))


if __name__ == "__main__":
    main()
