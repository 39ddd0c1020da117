"""Soft actor-critic (Haarnoja et al. 2018) as an algorithm of one's own, in one file beside its policy.

    cd plugrl-server
    python examples/sac/sac.py sac_policy default sac default

then, elsewhere, any client with a Box action space:

    plugrl-run-env-client classic-v1 --env.name Pendulum-v1

Importing this module registers `sac` and `sac_policy`. The built-in `sac` is replaced by the one here.
"""

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch
from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig, BaseAlgorithm
from plugrl_server.algorithm.registration import register_algo, register_algo_config
from plugrl_server.common.checkpoint_manager import Checkpoint
from plugrl_server.common.config_error import require
from plugrl_server.learning.replay_buffer import ReplayBuffer
from plugrl_server.learning.rng import load_rng_state, rng_state
from plugrl_server.policy.state import PolicyRuntimeState, PolicyTrainState
from sac_policy import SACPolicy

UID = "sac"


@register_algo_config(UID)
@dataclasses.dataclass
class SACConfig(BaseAlgoConfig):
    """The defaults are CleanRL's, but for a shorter start and run."""

    policies: ClassVar[tuple[str, ...] | None] = ("sac_policy",)

    global_steps: int | None = 20_000
    learning_rate: float = 3e-4
    critic_learning_rate: float = 1e-3
    """Learning rate of the critics and of the temperature."""
    buffer_size: int = 1_000_000
    batch_size: int = 256
    learning_starts: int = 1000
    """Frames of random actions before the first update."""
    policy_frequency: int = 2
    """Updates between those that move the actor, which then move it as often as was left out."""
    gamma: float = 0.99
    tau: float = 0.005
    report_interval: int = 500
    """Updates between rows of metrics."""
    save_interval: int = 10_000
    """Frames between checkpoints."""

    def check(self) -> None:
        """Refuse what can never learn."""
        super().check()
        for name in ("batch_size", "learning_starts", "policy_frequency", "report_interval", "save_interval"):
            value = getattr(self, name)
            require(value >= 1, f"--algo.{name.replace('_', '-')} {value}: must be at least 1.")
        sizes = f"--algo.batch-size {self.batch_size} is larger than --algo.buffer-size {self.buffer_size}"
        require(self.batch_size <= self.buffer_size, f"{sizes}: a batch is drawn from the buffer.")
        start = f"--algo.learning-starts {self.learning_starts} is not below --algo.global-steps {self.global_steps}"
        learns = self.global_steps is None or self.learning_starts < self.global_steps
        require(learns, f"{start}: the run would end before its first update.")


@register_algo(UID)
class SAC(BaseAlgorithm):
    """One update for each frame stored after the first `learning_starts`, whatever the number of clients."""

    on_policy = False  # every frame is stored, whichever version of the policy acted

    def __init__(self, config: SACConfig, policy: SACPolicy) -> None:
        super().__init__(config=config, policy=policy)
        self.updates = 0
        self.saved_step = 0
        self.replay = ReplayBuffer(config.buffer_size)
        self.losses: dict[str, torch.Tensor] = {}
        self.actor_optimizer = torch.optim.Adam(policy.actor.parameters(), config.learning_rate)
        self.critic_optimizer = torch.optim.Adam(policy.critics.parameters(), config.critic_learning_rate)
        self.alpha_optimizer = torch.optim.Adam([policy.log_alpha], config.critic_learning_rate)
        self.optimizers = self.actor_optimizer, self.critic_optimizer, self.alpha_optimizer

    # Acting and storing ------------------------------------------------------------------------------------------

    def infer(self, obs: dict[str, Any]) -> tuple[np.ndarray, PolicyRuntimeState]:
        """Choose an action for each environment: at first any, then the policy's."""
        if self.global_step < self.config.learning_starts:
            return self.policy.uniform_action_and_runtime_state(len(obs["text"]))
        return self.policy.get_action_and_runtime_state(obs)

    def derive_train_state(self, runtime_state: PolicyRuntimeState) -> PolicyTrainState:
        """Keep the action in the policy's own units; it comes back as `feedback(train_state=...)`."""
        return runtime_state["sample"]

    def feedback(
        self,
        *,
        obs: dict[str, Any],
        train_state: PolicyTrainState = None,
        next_obs: dict[str, Any],
        reward: float,
        info: dict[str, Any],
        next_terminated: bool,
        next_truncated: bool,
        prev_node: tuple[int, str],
        **_: Any,
    ) -> tuple[tuple[int, str], int, dict[str, Any]]:
        """Store one frame. `next_terminated` and `next_truncated` are its own outcome."""
        nodes = self.replay.add(
            obs=self.policy.read(obs),
            action=train_state,
            next_obs=self.policy.read(next_obs),
            reward=np.array([reward], np.float32),
            terminated=np.array([next_terminated]),
            truncated=np.array([next_truncated]),
            nodes=[prev_node],
        )
        self.record_finished_episode(info, next_terminated, next_truncated)
        self.global_step += 1
        return nodes[0], self.global_step, {}

    # Learning ----------------------------------------------------------------------------------------------------

    def should_learn(self) -> bool:
        """Return whether there were fewer updates than the frames call for; `learn_impl` makes it false."""
        return self.updates < self.global_step - self.config.learning_starts

    def learn_impl(self) -> tuple[int, dict[str, Any] | None]:
        """Take the updates that are due. With None for metrics, a learn step writes no row of its own."""
        reports = self.updates // self.config.report_interval
        while self.should_learn():
            self.update()
        if self.updates // self.config.report_interval == reports and not self.should_stop():
            return self.global_step, None
        return self.global_step, {f"losses/{name}": float(loss) for name, loss in self.losses.items()}

    def update(self) -> None:
        """Move the critics, every `policy_frequency`-th time the actor and the temperature, and the targets."""
        batch = self.replay.sample(self.config.batch_size, self.policy.rng)
        arrays = batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated.astype(np.float32)
        obs, action, reward, next_obs, terminated = (torch.from_numpy(array).to(self.policy.device) for array in arrays)
        self.update_critics(obs, action, self.target(reward, next_obs, terminated))
        self.updates += 1
        if self.updates % self.config.policy_frequency == 0:
            for _ in range(self.config.policy_frequency):
                self.update_actor(obs)
        critics, targets = self.policy.critics.parameters(), self.policy.targets.parameters()
        with torch.no_grad():
            for target, parameter in zip(targets, critics, strict=True):
                target.lerp_(parameter, self.config.tau)

    @torch.no_grad()
    def target(self, reward: torch.Tensor, next_obs: torch.Tensor, terminated: torch.Tensor) -> torch.Tensor:
        """Return y = r + gamma (1 - terminated) (min Q'(s', a') - alpha log pi(a'|s')); a truncated frame goes on."""
        next_action, next_log_prob = self.policy.sample(next_obs, self.noise(len(next_obs)))
        next_q = self.policy.q_values(self.policy.targets, next_obs, next_action).amin(0)
        return reward + self.config.gamma * (1 - terminated) * (next_q - self.policy.log_alpha.exp() * next_log_prob)

    def update_critics(self, obs: torch.Tensor, action: torch.Tensor, target: torch.Tensor) -> None:
        """Minimise E[(Q - y)^2] of both critics."""
        q = self.policy.q_values(self.policy.critics, obs, action)
        loss = (q - target).square().mean(1).sum()
        step(self.critic_optimizer, loss)
        self.losses |= {"critic_loss": loss.detach(), "q_value": q.detach().mean()}

    def update_actor(self, obs: torch.Tensor) -> None:
        """Minimise E[alpha log pi - min Q], then move alpha so that the entropy -log pi nears -action_dim."""
        log_alpha = self.policy.log_alpha
        action, log_prob = self.policy.sample(obs, self.noise(len(obs)))
        q = self.policy.q_values(self.policy.critics, obs, action).amin(0)
        loss = (log_alpha.exp().detach() * log_prob - q).mean()
        step(self.actor_optimizer, loss)
        step(self.alpha_optimizer, (-log_alpha.exp() * (log_prob.detach() - self.policy.action_dim)).mean())
        self.losses |= {"actor_loss": loss.detach(), "entropy": -log_prob.detach().mean()}
        self.losses |= {"alpha": log_alpha.detach().exp()}

    def noise(self, n: int) -> torch.Tensor:
        """Return standard normal noise for n actions."""
        return torch.randn(n, self.policy.action_dim, device=self.policy.device)

    # Scheduling and state ----------------------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """Return whether all frames are stored and learned from."""
        steps = self.config.global_steps
        return steps is not None and self.global_step >= steps and not self.should_learn()

    def should_save(self) -> bool:
        """Return whether `save_interval` frames came since the last checkpoint; `create_checkpoint` makes it false."""
        return self.global_step - self.saved_step >= self.config.save_interval

    def create_checkpoint(self) -> Checkpoint:
        """Return everything: weights, optimizers, the replay buffer, counters and random generators."""
        self.saved_step = self.global_step
        return Checkpoint(
            step=self.global_step,
            model=self.policy.state_dict(),
            optimizer=[optimizer.state_dict() for optimizer in self.optimizers],
            meta={"updates": self.updates, "replay": self.replay.state_dict(), "rng": rng_state(self.policy)},
        )

    def load_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Restore what `create_checkpoint` returned."""
        self.global_step = self.saved_step = checkpoint.step
        self.policy.load_state_dict(checkpoint.model)
        for optimizer, state in zip(self.optimizers, checkpoint.optimizer, strict=True):
            optimizer.load_state_dict(state)
        self.updates = checkpoint.meta["updates"]
        self.replay.load_state_dict(checkpoint.meta["replay"])
        load_rng_state(checkpoint.meta["rng"], self.policy)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take one optimizer step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    from plugrl_server.cli import main

    main()
