"""Configuration of DPPO and its presets."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from plugrl_server.algorithm.evaluation.trained_policy import find_trained_policy, require_weights
from plugrl_server.algorithm.on_policy.on_policy_config import (
    OnPolicyConfig,
    flag,
    require_at_least,
    require_fraction,
    require_positive,
)
from plugrl_server.algorithm.registration import register_algo_config
from plugrl_server.common.config_error import require
from plugrl_server.record.run_record import RunRecord

MOST_CLIP_COEF_RATE = 80.0
"""Its exponential still fits into float32."""


@register_algo_config("dppo")
@dataclasses.dataclass
class DPPOConfig(OnPolicyConfig):
    """DPPO that trains a policy from scratch: every denoising step learns."""

    policies: ClassVar[tuple[str, ...] | None] = ("dppo-policy", "fpo-policy", "lerobot-diffusion-policy")

    learning_rate: float = 3e-4
    critic_learning_rate: float | None = 1e-3
    weight_decay: float = 0.0
    """Decoupled weight decay of both (AdamW)."""
    max_grad_norm: float | None = 1.0
    batch_size: int = 256
    """Frames of one mini-batch; the actor learns from as many (frame, denoising step) pairs as they have."""
    policy_checkpoint_path: Path | None = None
    """A run folder (its latest step), or one step of it, whose policy to begin with; none: from scratch."""
    finetuned_steps: int | None = None
    """Last denoising steps that learn; the ones before run the weights the run began with. Default: all learn."""
    gamma_denoising: float = 0.99
    """Discount of the advantage per denoising step that is still to come."""
    clip_coef: float = 0.05
    """Half width of the interval around 1 in which the probability ratio of the last denoising step counts."""
    clip_coef_base: float = 0.05
    """The same of the first denoising step that learns."""
    clip_coef_rate: float = 3.0
    """How late the half width rises from the one to the other: exponentially, at this rate."""
    advantage_quantile: float | None = None
    """Clip a mini-batch's advantages to this quantile and its mirror image (0.05: 5% and 95%); none: do not."""
    min_logprob_std: float = 0.1
    """Least standard deviation of a denoising step when its probability is taken."""
    executed_steps: int | None = None
    """Actions of a chunk that clients run (their --runner.replan-steps): only these are learned from; default: all."""

    def check(self) -> None:
        """Refuse what can never learn or is out of range."""
        super().check()
        for name in ("clip_coef", "clip_coef_base", "clip_coef_rate", "min_logprob_std"):
            require_positive(self, name)
        require(
            self.clip_coef_rate <= MOST_CLIP_COEF_RATE,
            f"{flag('clip_coef_rate')} {self.clip_coef_rate}: must be at most {MOST_CLIP_COEF_RATE:g}.",
        )
        for name in ("finetuned_steps", "executed_steps"):
            require_at_least(self, name, 1)
        require_fraction(self, "gamma_denoising")
        quantile = self.advantage_quantile
        require(
            quantile is None or 0 < quantile < 0.5,
            f"{flag('advantage_quantile')} {quantile}: must lie between 0 and 0.5.",
        )
        require(
            0 <= self.weight_decay < float("inf"),
            f"{flag('weight_decay')} {self.weight_decay}: must be a finite number of at least 0.",
        )

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse a policy whose chain or chunk is too short, or whose denoising steps explore nothing."""
        for mine, theirs in (("finetuned_steps", "num_steps"), ("executed_steps", "action_horizon")):
            value, limit = getattr(self, mine), getattr(config, theirs, None)
            require(
                value is None or limit is None or value <= limit,
                f"{flag(mine)} {value} is more than {uid}'s --policy.{theirs.replace('_', '-')} {limit}.",
            )
        require(
            getattr(config, "exploration_noise", 1.0) > 0,
            f"dppo learns from the noise of denoising steps, and {uid} has none: --policy.exploration-noise 1.0, or "
            f"its variant large.",
        )

    def policy_record(self) -> RunRecord | None:
        """Return the record of the run whose policy this one begins with."""
        path = self.policy_checkpoint_path
        return None if path is None else find_trained_policy(path).record()


@register_algo_config("dppo", "finetune")
@dataclasses.dataclass
class DPPOFinetuneConfig(DPPOConfig):
    """The paper's settings for fine-tuning a pretrained locomotion policy: the last 10 of 20 steps learn, carefully."""

    global_steps: int | None = 2_000_000
    learning_rate: float = 1e-4
    max_grad_norm: float | None = None
    buffer_size: int = 20_000
    batch_size: int = 5000
    update_epochs: int = 5
    clip_coef: float = 0.01
    clip_coef_base: float = 0.01
    target_kl: float | None = 1.0
    finetuned_steps: int | None = 10

    def check_policy(self, uid: str, config: Any) -> None:
        """Refuse random weights too: steps this small never get anywhere from them."""
        super().check_policy(uid, config)
        why = "random ones are not worth fine-tuning: to train from scratch, take dppo default"
        require_weights("dppo finetune", self.policy_checkpoint_path, uid, config, why)


@register_algo_config("dppo", "hopper")
@dataclasses.dataclass
class DPPOHopperConfig(DPPOConfig):
    """Hopper-v5 from scratch, for 20 denoising steps and chunks of 4.

    The KL estimate is that of one number of one denoising step: a chain has some hundred times as much. At three times
    this rate one iteration can undo all that was learned, and at a constant one so can a hundred thousand decisions.
    """

    learning_rate: float = 1e-4
    anneal_learning_rate: bool = True
    target_kl: float | None = 2e-3


@register_algo_config("dppo", "walker")
@dataclasses.dataclass
class DPPOWalkerConfig(DPPOHopperConfig):
    """Walker2d-v5 from scratch: twice the frames an iteration, for twice the joints."""

    global_steps: int | None = 300_000
    buffer_size: int = 4096


@register_algo_config("dppo", "cheetah")
@dataclasses.dataclass
class DPPOCheetahConfig(DPPOWalkerConfig):
    """HalfCheetah-v5 from scratch; episodes never terminate, so the advantage looks further ahead."""

    gae_lambda: float = 0.97
