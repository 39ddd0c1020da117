"""Configuration of FPO and its presets."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal

from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy, require_weights
from plugrl_server.algorithm.on_policy.on_policy_config import (
    OnPolicyConfig,
    require_at_least,
    require_fraction,
    require_not_negative,
    require_positive,
)
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require
from plugrl_server.record.run_record import RunRecord


@register_algo_config("fpo")
@dataclasses.dataclass
class FPOConfig(OnPolicyConfig):
    """FPO (McAllister et al. 2025)."""

    policies: ClassVar[tuple[str, ...] | None] = ("fpo-policy", "lerobot-flow-policy")

    buffer_size: int = 4096
    batch_size: int = 1024
    update_epochs: int = 16
    gamma: float = 0.995
    max_grad_norm: float | None = None
    normalize_rewards: bool = False
    reward_scale: float = 10.0
    vf_coef: float = 0.25
    """Weight of the value loss, the mean of (V - R)^2."""
    clip_coef: float = 0.05
    """Half width of the interval around 1 in which a ratio counts."""
    num_samples: int = 8
    """Pairs of time and noise drawn for each stored chunk."""
    flow_loss: Literal["u", "u_but_supervise_as_eps"] = "u_but_supervise_as_eps"
    """Error of a pair: that of the velocity, or that of the noise it predicts."""
    loss_reduction: Literal["mean", "sum"] = "mean"
    """How a pair's squared errors over executed steps and action numbers become its loss."""
    ratio: Literal["mean", "per-sample"] = "mean"
    """One ratio for a chunk, of its pairs' mean loss (FPO), or one for each pair (FPO++)."""
    objective: Literal["ppo", "aspo"] = "ppo"
    """PPO's clipped objective, or ASPO: clipped where the advantage is positive, SPO's penalty where it is not."""
    advantage_shift: float = 0.0
    """Added to the normalised advantages: how strongly the flow is matched to its own chunks, whatever they earn."""
    advantage_clamp: float | None = None
    """Advantages are clamped to +- this; none: not."""
    loss_clamp: float | None = None
    """Losses of pairs are clamped to this; none: not."""
    difference_clamp: float | None = None
    """Differences of old and new loss are clamped to +- this, gradients passing; none: not."""
    huber_delta: float | None = None
    """Error beyond which the squared error goes on linearly; none: nowhere."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decays of the actor's moments."""
    weight_decay: float = 0.0
    """Decoupled weight decay of actor and critic (AdamW)."""
    ema_decay: float | None = None
    """Decay of the running average of the actor's weights that an iteration ends with; none: the last weights."""
    ema_start: int = 500
    """Optimizer steps before the average begins."""
    policy_checkpoint_path: Path | None = None
    """A run folder (its latest step), or one step of it, whose policy to begin with; none: from scratch."""
    executed_steps: int | None = None
    """Actions of a chunk that clients run (their --runner.replan-steps): only these are learned from; default: all."""

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        require_at_least(self, "num_samples", 1)
        require_at_least(self, "ema_start", 0)
        require_at_least(self, "executed_steps", 1)
        for name in ("clip_coef", "advantage_clamp", "loss_clamp", "difference_clamp", "huber_delta"):
            require_positive(self, name)
        require_fraction(self, "ema_decay")
        require(self.ema_decay is None or self.ema_decay < 1, f"--algo.ema-decay {self.ema_decay}: must be below 1.")
        for name in ("vf_coef", "weight_decay", "advantage_shift"):
            require_not_negative(self, name)
        require(
            all(0 <= beta < 1 for beta in self.betas),
            f"--algo.betas {self.betas[0]} {self.betas[1]}: both must be at least 0 and below 1.",
        )

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse a policy whose chunk is too short."""
        horizon = getattr(config, "action_horizon", None)
        require(
            self.executed_steps is None or horizon is None or self.executed_steps <= horizon,
            f"--algo.executed-steps {self.executed_steps} is more than {uid}'s --policy.action-horizon {horizon}.",
        )

    def policy_record(self) -> RunRecord | None:
        """Return the record of the run whose policy this one begins with."""
        path = self.policy_checkpoint_path
        return None if path is None else find_trained_policy(path).record()


@register_algo_config("fpo", "plus-plus")
@dataclasses.dataclass
class FPOPlusPlusConfig(FPOConfig):
    """FPO++ (Yi, Choi et al. 2026) from scratch."""

    learning_rate: float = 1e-3
    critic_learning_rate: float | None = 3e-4
    buffer_size: int = 2048
    batch_size: int = 256
    update_epochs: int = 10
    gamma: float = 0.99
    max_grad_norm: float | None = 0.5
    normalize_rewards: bool = True
    reward_scale: float = 1.0
    ratio: Literal["mean", "per-sample"] = "per-sample"
    objective: Literal["ppo", "aspo"] = "aspo"
    advantage_shift: float = 0.1
    advantage_clamp: float | None = 100.0
    loss_clamp: float | None = 20.0
    difference_clamp: float | None = 10.0
    weight_decay: float = 1e-4
    ema_decay: float | None = 0.95


@register_algo_config("fpo", "plus-plus-finetune")
@dataclasses.dataclass
class FPOPlusPlusFinetuneConfig(FPOPlusPlusConfig):
    """FPO++ on a policy that is trained already: the paper's small steps, and losses summed over a chunk."""

    learning_rate: float = 1e-5
    critic_learning_rate: float | None = 1e-4
    betas: tuple[float, float] = (0.9, 0.99)
    loss_reduction: Literal["mean", "sum"] = "sum"
    clip_coef: float = 0.01
    critic_warmup_iterations: int = 1

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse random weights too: steps this small never get anywhere from them."""
        super().check_policy(uid, config)
        why = "random ones are not worth fine-tuning: to train from scratch, take fpo plus-plus"
        require_weights("fpo plus-plus-finetune", self.policy_checkpoint_path, uid, config, why)


@register_algo_config("fpo", "cheetah")
@dataclasses.dataclass
class FPOCheetahConfig(FPOPlusPlusConfig):
    """HalfCheetah-v5 and its like from few frames: the error of the velocity, small mini-batches, a wide interval."""

    critic_learning_rate: float | None = 1e-3
    anneal_learning_rate: bool = True
    batch_size: int = 64
    update_epochs: int = 5
    clip_coef: float = 0.2
    flow_loss: Literal["u", "u_but_supervise_as_eps"] = "u"
    ratio: Literal["mean", "per-sample"] = "mean"
