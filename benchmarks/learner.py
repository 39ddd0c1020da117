"""What learning costs by itself, without environments and without a wire.

One PPO learn step against a bare hand-written Torch loop of the same mathematics (bare_ppo.py), SAC's updates against
Stable-Baselines3's (sac_learners.py), and how long generalised advantages take. The contenders take turns in one
process, on the same frames and threads.

    python benchmarks/learner.py --json results.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import measure
import numpy as np
import sac_learners
import torch
from bare_ppo import OPTIMIZERS, ActorCritic, BarePPO, Rollout
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.ppo.ppo import PPO
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.learning.returns import gae
from plugrl_server.learning.rng import seed_everything
from plugrl_server.policy.gaussian.gaussian_policy import GaussianPolicy
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from rich.table import Table
from sb3_ppo import PPOSettings

OBS_DIM, ACTION_DIM = 17, 6  # HalfCheetah-v5
GLOBAL_STEPS = 10_000_000
TARGETS = {
    "ppo_update_over_bare_loop": ("at_most", 1.2),
    "sac_updates_over_sb3": ("at_least", 1.0),
    "gae_ms": ("at_most", 5.0),
}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    frames: int = 16_384
    update_epochs: int = 10
    rounds: int = 5
    gae_steps: int = 2048
    gae_envs: int = 64
    sac_updates: int = 200
    sac_frames: int = 20_000


QUICK = Size(frames=2048, update_epochs=2, rounds=2, sac_updates=30, sac_frames=2000)


# --- PPO -----------------------------------------------------------------------------------------


def settings_of(size: Size) -> PPOSettings:
    """The usual settings, at this size."""
    return replace(PPOSettings(), buffer_size=size.frames, update_epochs=size.update_epochs)


def make_rollout(settings: PPOSettings, seed: int) -> Rollout:
    """Frames of no environment in particular: smooth observations, samples near the first policy's, rare ends."""
    rng = np.random.default_rng(seed)
    steps, envs = settings.buffer_size // settings.num_envs, settings.num_envs

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    obs = normal(steps + 1, envs, OBS_DIM).cumsum(0) / 10
    done = torch.from_numpy(rng.random((steps, envs)) < 1e-3)
    return Rollout(obs[:-1], normal(steps, envs, ACTION_DIM), normal(steps, envs), done, obs[-1])


class Ours:
    """The server's PPO, fed as the server feeds it."""

    def __init__(self, settings: PPOSettings) -> None:
        sizes = {"obs_dim": OBS_DIM, "action_dim": ACTION_DIM, "hidden_sizes": settings.hidden}
        policy = GaussianPolicy(GaussianPolicyConfig(device="cpu", **sizes))
        names = PPOConfig.__dataclass_fields__
        shared = {name: value for name, value in asdict(settings).items() if name in names}
        self.algorithm = PPO(PPOConfig(global_steps=GLOBAL_STEPS, **shared), policy)
        self.algorithm.init_optimizers()
        self.nodes = [NO_NODE] * settings.num_envs

    def store(self, rollout: Rollout) -> None:
        """Hand over a rollout, one message a step."""
        obs = torch.cat([rollout.obs, rollout.last_obs[None]]).numpy()
        no = np.zeros(len(self.nodes), bool)
        before = no
        for t in range(len(rollout.reward)):
            done = rollout.done[t].numpy()
            rows = FeedbackRows(
                obs=_observation(obs[t]),
                runtime_state={"sample": rollout.action[t].numpy()},
                train_state=rollout.action[t].numpy(),
                terminated=before,
                truncated=no,
                next_obs=_observation(obs[t + 1]),
                reward=rollout.reward[t].numpy(),
                info=[{}] * len(no),
                next_terminated=done,
                next_truncated=no,
                nodes=self.nodes,
            )
            self.algorithm.feedback_rows(rows)
            self.nodes, before = rows.nodes, done

    def learn(self) -> None:
        """One learn step with all that comes with it: metrics, normalisers, the buffer cleared."""
        self.algorithm.pre_learn()
        self.algorithm.learn()
        self.algorithm.post_learn()


def _observation(states: np.ndarray) -> dict[str, Any]:
    return {"images": {}, "states": {"state": states}, "text": np.zeros(len(states), "<U1")}


def make_bare(ours: Ours, settings: PPOSettings, optimizer: str) -> BarePPO:
    """The bare loop, starting from the same weights and drawing the same mini-batches."""
    net = ActorCritic(OBS_DIM, ACTION_DIM, settings.hidden)
    policy = ours.algorithm.policy
    net.actor.load_state_dict(policy.actor.state_dict())
    net.critic.load_state_dict(policy.critic.state_dict())
    bare = BarePPO(net, settings, optimizer)
    bare.generator.set_state(ours.algorithm.generator.get_state())
    return bare


def measure_ppo(size: Size, steps: measure.Steps) -> dict[str, list[float]]:
    """Seconds of each learn step: ours, and the bare loop with each optimizer; the first of each is not counted."""
    settings = settings_of(size)
    seed_everything(0)
    ours = Ours(settings)
    bare = {name: make_bare(ours, settings, name) for name in OPTIMIZERS}
    rollout = make_rollout(settings, seed=0)
    learners: dict[str, Callable[[], None]] = {"ours": ours.learn}
    for name, loop in bare.items():
        learners[name] = lambda loop=loop: loop.learn(rollout, settings.learning_rate)
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(size.rounds + 1):
        ours.store(rollout)
        for i in range(len(learners)):
            name = list(learners)[(turn + i) % len(learners)]
            steps.begin(f"PPO, round {turn}: {name}")
            taken = timed(learners[name])
            if turn:
                seconds[name].append(taken)
    return seconds


def ppo_results(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The ratio to the quickest of the bare loops, by the medians of the rounds' ratios, and everything measured."""
    ratios = {name: measure.median_ratio(seconds["ours"], seconds[name]) for name in OPTIMIZERS}
    return {
        "ppo_update_over_bare_loop": max(ratios.values()),
        "ppo": {
            "ratio_to": ratios,
            "seconds": {name: rounded(values) for name, values in seconds.items()},
            "least_seconds": {name: round(min(values), 4) for name, values in seconds.items()},
        },
    }


# --- SAC -----------------------------------------------------------------------------------------


def measure_sac(size: Size, steps: measure.Steps) -> dict[str, list[float]]:
    """Seconds of each block of updates, ours and Stable-Baselines3's; the first of each is not counted."""
    settings = sac_learners.SACSettings(frames=size.sac_frames)
    frames = sac_learners.Frames.random(size.sac_frames)
    learners = {
        "ours": sac_learners.ours(settings, frames),
        "stable_baselines3": sac_learners.StableBaselines3(settings, frames),
    }
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(size.rounds + 1):
        for name in list(learners) if turn % 2 else list(reversed(learners)):
            steps.begin(f"SAC, round {turn}: {name}")
            taken = timed(lambda: learners[name].update(size.sac_updates))  # noqa: B023 - called at once
            if turn:
                seconds[name].append(taken)
    return seconds


def sac_results(seconds: dict[str, list[float]], updates: int) -> dict[str, Any]:
    """The ratio of updates per second, by the median of the rounds' ratios, and the quickest round of each."""
    return {
        "sac_updates_over_sb3": measure.median_ratio(seconds["stable_baselines3"], seconds["ours"]),
        "sac": {
            "most_updates_per_second": {name: round(updates / min(taken), 1) for name, taken in seconds.items()},
            "seconds": {name: rounded(taken) for name, taken in seconds.items()},
        },
    }


# --- advantages ----------------------------------------------------------------------------------


def measure_gae(size: Size, steps: measure.Steps) -> list[float]:
    """Seconds of each of some calls on [T, E] arrays."""
    rng = np.random.default_rng(0)
    shape = (size.gae_steps, size.gae_envs)
    rewards, values, next_values = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
    done = rng.random(shape) < 1e-3
    steps.begin(f"GAE of {size.gae_steps}x{size.gae_envs}")
    return [timed(lambda: gae(rewards, values, next_values, done, done, 0.99, 0.95)) for _ in range(10 * size.rounds)]


def gae_results(seconds: list[float]) -> dict[str, Any]:
    """The median and the least, ms."""
    return {"gae_ms": round(1e3 * float(np.median(seconds)), 3), "gae_least_ms": round(1e3 * min(seconds), 3)}


# --- reporting and command line ------------------------------------------------------------------


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call took."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def rounded(values: list[float]) -> list[float]:
    """Seconds to a tenth of a millisecond."""
    return [round(value, 4) for value in values]


def verdicts(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """For each target that was measured, the limit and whether it was met."""
    told = {}
    for name, (kind, limit) in TARGETS.items():
        if name in found:
            met = found[name] <= limit if kind == "at_most" else found[name] >= limit
            told[name] = {kind: limit, "met": met}
    return told


def print_table(content: dict[str, Any]) -> None:
    """The headlines and their targets."""
    table = Table("figure", "measured", "target", "", title="learning by itself")
    for name, target in content["targets"].items():
        kind, limit = next(iter(target.items()))
        verdict = "[green]met[/]" if target["met"] else "[red]missed[/]"
        table.add_row(name, f"{content[name]:.2f}", f"{kind.replace('_', ' ')} {limit:g}", verdict)
    measure.console.print(table)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Cost of learning by itself.")
    parser.add_argument("--rounds", type=int, help=f"interleaved learn steps of each (default {Size.rounds})")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of every contender (default 1)")
    parser.add_argument("--quick", action="store_true", help="few frames and rounds")
    measure.add_report_options(parser, time_limit=900)
    args = parser.parse_args(argv)
    for name in ("rounds", "threads"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return args


def results(size: Size) -> dict[str, Any]:
    """Everything measured, headlines first."""
    with measure.progress() as bar:
        steps = measure.Steps(bar, (size.rounds + 1) * (3 + len(OPTIMIZERS)) + 1)
        found = {
            **ppo_results(measure_ppo(size, steps)),
            **sac_results(measure_sac(size, steps), size.sac_updates),
            **gae_results(measure_gae(size, steps)),
        }
    return {"targets": verdicts(found), **found}


def main(argv: list[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    size = QUICK if args.quick else Size()
    size = size if args.rounds is None else replace(size, rounds=args.rounds)
    torch.set_num_threads(args.threads)
    settings = {
        "quick": args.quick,
        "threads": args.threads,
        "load_average_before": measure.load_average(),
        "size": asdict(size),
        "ppo": asdict(settings_of(size)),
    }
    return measure.carry_out("learner", args, settings, lambda: results(size), print_table)


if __name__ == "__main__":
    measure.run_script(main)
