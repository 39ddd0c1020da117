"""What is trained: one row of the results table each, with the figure that others published."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One algorithm on one environment.

    Attributes:
        algo: Algorithm and variant, as on the command line; so is `policy`.
        env: Environment id.
        steps: Length of the run in decisions (`--algo.global-steps`).
        seeds: How many seeds, from 0.
        reach: The figure to reach, None where none is known.
        published: Where that figure comes from, and after how many steps.
        num_envs: Environments of the one client.
        flags: Further flags of the server.
        length: A word for the run's name where another row has the same algorithm and environment.
    """

    algo: str
    policy: str
    family: str
    env: str
    steps: int
    seeds: int
    reach: float | None
    published: str
    num_envs: int = 8
    flags: str = ""
    length: str = ""

    def run_name(self, seed: int) -> str:
        """The run folder's name."""
        length = f"-{self.length}" if self.length else ""
        return f"{self.algo.split()[1]}-{self.env.lower()}{length}-seed{seed}"

    def run_folder(self, base: Path, seed: int) -> Path:
        """Where the server keeps this run."""
        return base / self.algo.split()[0] / self.policy.split()[0] / self.run_name(seed)

    def command(self, base: Path, seed: int, *, resume: bool = False) -> list[str]:
        """The server's command line, which starts the client too."""
        client = (
            f"plugrl-run-env-client {self.family} {_env_flag(self.family)} {self.env} "
            f"--num-envs {self.num_envs} --runner.seed {seed}"
        )
        words = ["plugrl-run-server", *self.policy.split(), *self.algo.split()]
        words += ["--algo.global-steps", str(self.steps), *shlex.split(self.flags)]
        words += ["--checkpoint-base-dir", str(base), "--exp-name", self.run_name(seed), "--port", "0"]
        words += ["--keep-checkpoints", "1", "--client", client]
        return [*words, "--resume"] if resume else [*words, "--seed", str(seed)]


def _env_flag(family: str) -> str:
    return "--env.id" if family == "gym-v1" else "--env.name"


ROWS = {
    "ppo-cartpole": Row(
        "ppo discrete", "categorical-policy default", "classic-v1", "CartPole-v1", 100_000, 5, 475, "solved at 475",
        num_envs=4,
    ),
    "ppo-pendulum": Row(
        "ppo pendulum", "gaussian-policy default", "classic-v1", "Pendulum-v1", 102_400, 5, -206,
        "-172 +- 104 at 102,400, tuned (RL zoo)", num_envs=4,
    ),
    "ppo-pendulum-default": Row(
        "ppo default", "gaussian-policy default", "classic-v1", "Pendulum-v1", 150_000, 5, -300,
        "-217 to -248 at 150,000 (a plain loop)",
    ),
    "ppo-halfcheetah": Row(
        "ppo default", "gaussian-policy default", "mujoco-v1", "HalfCheetah-v5", 1_000_000, 1, 1443,
        "1442.6 at 1M on v4 (CleanRL)",
    ),
    "ppo-hopper": Row(
        "ppo default", "gaussian-policy default", "mujoco-v1", "Hopper-v5", 1_000_000, 1, 2383,
        "2382.9 at 1M on v4 (CleanRL)",
    ),
    "ppo-walker2d": Row(
        "ppo default", "gaussian-policy default", "mujoco-v1", "Walker2d-v5", 1_000_000, 3, 2957,
        "2957 at 1M; 2288.0 on v4 (CleanRL)",
    ),
    "sac-pendulum": Row(
        "sac pendulum", "sac-policy default", "classic-v1", "Pendulum-v1", 15_000, 3, None, "none known to us",
        num_envs=1,
    ),
    "sac-halfcheetah": Row(
        "sac default", "sac-policy default", "mujoco-v1", "HalfCheetah-v5", 60_000, 1, None,
        "9635 at 1M (CleanRL); no figure at 60,000 at hand", num_envs=1,
    ),
    "sac-halfcheetah-1m": Row(
        "sac default", "sac-policy default", "mujoco-v1", "HalfCheetah-v5", 1_000_000, 3, 9635, "9635 at 1M (CleanRL)",
        num_envs=1, length="1m",
    ),
    "sac-hopper": Row(
        "sac default", "sac-policy default", "mujoco-v1", "Hopper-v5", 1_000_000, 3, 2310, "2310 at 1M (CleanRL)",
        num_envs=1,
    ),
    "sac-walker2d": Row(
        "sac default", "sac-policy default", "mujoco-v1", "Walker2d-v5", 1_000_000, 3, 3591, "3591 at 1M (CleanRL)",
        num_envs=1,
    ),
    "fpo-halfcheetah": Row(
        "fpo cheetah", "fpo-policy exploring", "mujoco-v1", "HalfCheetah-v5", 150_000, 1, None, "1928 at 500,000"
    ),
    "fpo-halfcheetah-500k": Row(
        "fpo cheetah", "fpo-policy exploring", "mujoco-v1", "HalfCheetah-v5", 500_000, 3, 1928,
        "1928 at 500,000, and not falling after its peak", length="500k",
    ),
    "fpo-hopper": Row(
        "fpo cheetah", "fpo-policy exploring", "mujoco-v1", "Hopper-v5", 410_000, 3, 1800, "1800 at 410,000"
    ),
    "dppo-hopper": Row(
        "dppo hopper", "dppo-policy default", "mujoco-v1", "Hopper-v5", 150_000, 1, None, "1037 at 1.23M (flow)"
    ),
    "dppo-flow-hopper": Row(
        "dppo hopper", "fpo-policy large", "mujoco-v1", "Hopper-v5", 1_230_000, 3, 1037,
        "1037 at 1.23M (flow, 3x512, chunks of 4)",
        flags="--algo.clip-coef 0.03 --algo.clip-coef-base 0.03",
    ),
}  # fmt: skip
