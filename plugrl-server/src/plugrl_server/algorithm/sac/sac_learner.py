"""Soft actor-critic (Haarnoja et al. 2018), read downwards: losses, storing, updates, state.

`SACLearner` knows neither server nor schedule: it takes frames and updates a policy when it is told to, so that it can
run beside inference or in a process of its own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from plugrl_server.algorithm.collectives import ALONE, Collectives, backward
from plugrl_server.algorithm.sac.polyak import PolyakTarget
from plugrl_server.algorithm.sac.sac_config import SACConfig
from plugrl_server.learning.optim import FlatAdam, Group
from plugrl_server.learning.replay_buffer import Batch, ReplayBuffer
from plugrl_server.learning.rng import derived_generator
from plugrl_server.learning.trees import Tree
from plugrl_server.policy.sac.sac_policy import SACPolicy

# Losses ----------------------------------------------------------------------------------------------------------


def soft_target(
    reward: torch.Tensor,
    terminated: torch.Tensor,
    next_q: torch.Tensor,
    next_log_prob: torch.Tensor,
    alpha: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Return y = r + gamma (1 - terminated) (min Q'(s', a') - alpha log pi(a'|s')), f4[n]; `next_q` is f4[2, n]."""
    soft_value = next_q.amin(0) - alpha * next_log_prob
    return reward + gamma * (1 - terminated) * soft_value


def critic_loss(q: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the sum over both critics of mean (Q - y)^2, of Q f4[2, n] and y f4[n]."""
    return (q - target).square().mean(1).sum()


def actor_loss(log_prob: torch.Tensor, q: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """Return mean (alpha log pi(a|s) - min Q(s, a)), of f4[n] and f4[2, n]."""
    return (alpha * log_prob - q.amin(0)).mean()


def alpha_loss(log_alpha: torch.Tensor, log_prob: torch.Tensor, target_entropy: float) -> torch.Tensor:
    """Return mean -alpha (log pi + target entropy): it raises alpha while the entropy -log pi is below the target."""
    return (-log_alpha.exp() * (log_prob + target_entropy)).mean()


# Learner ---------------------------------------------------------------------------------------------------------

OF_CRITIC = ("losses/critic_loss", "losses/q_value")
OF_ACTOR = ("losses/actor_loss", "losses/entropy", "losses/alpha", "losses/alpha_loss")


class Update(NamedTuple):
    """What every learner takes one update from: rank 0 alone has frames, and draws the batch that all share.

    The replay buffer is not kept by every learner: each frame would be sent to each of them too, and held as often.

    Attributes:
        batch: The whole batch.
        updates: How many updates were before it.
        generator: State of the generator of the noise.
        normalizer: State of the policy's normaliser, which moves as frames come in; None where it is off.
    """

    batch: Batch
    updates: int
    generator: torch.Tensor
    normalizer: dict[str, torch.Tensor] | None


class SACLearner:
    """Replay buffer, optimizers and target networks around a policy.

    Args:
        config: Checked.
        policy: What learns; its parameters are moved into the optimizers' flat tensors.

    Attributes:
        updates: Updates taken so far.
        replay: The frames: `observe`d observations and, as actions, chunks f4[n, D].
        target_entropy: What the temperature is tuned for.
        collectives: The learners that share each batch.
    """

    collectives: Collectives = ALONE

    def __init__(self, config: SACConfig, policy: SACPolicy) -> None:
        self.config = config
        self.policy = policy
        self.updates = 0
        self.replay = ReplayBuffer(config.buffer_size)
        self.rng = np.random.default_rng(int(torch.randint(2**62, ())))
        self.generator = derived_generator(policy.device)
        self.target_entropy = -float(policy.numbers) if config.target_entropy is None else config.target_entropy
        with torch.no_grad():
            policy.log_alpha.fill_(np.log(config.alpha))
        self.actor_optimizer = FlatAdam([Group(list(policy.actor_parameters()), config.learning_rate)])
        self.critic_optimizer = FlatAdam([Group(list(policy.critic_parameters()), config.critic_learning_rate)])
        self.alpha_optimizer = FlatAdam([Group([policy.log_alpha], config.critic_learning_rate)])
        self.targets = PolyakTarget(policy.target_parameters(), self.critic_optimizer.weights(0))
        self._rows, self._weight = 0, 1.0
        self._told: dict[str, list[torch.Tensor]] = {name: [] for name in OF_CRITIC + OF_ACTOR}

    # Storing -----------------------------------------------------------------------------------------------------

    def add(self, *, obs: Tree, **frames: Any) -> list[tuple[int, str]]:
        """Store frames (arguments: `ReplayBuffer.add`); the normaliser, where it is on, takes in what was acted on."""
        self.policy.update_normalizer(obs)
        return self.replay.add(obs=obs, **frames)

    # Updates -----------------------------------------------------------------------------------------------------

    def update(self, n: int = 1) -> None:
        """Take n updates, each on a batch of its own. What they report is read by `metrics`."""
        for _ in range(n):
            self.learn_from(self.replay.sample(self.config.batch_size, self.rng))

    def drawn(self) -> Update:
        """Return the next update, for every learner to take."""
        normalizer = self.policy.normalizer.state_dict() if self.policy.config.normalize_observations else None
        batch = self.replay.sample(self.config.batch_size, self.rng)
        return Update(batch, self.updates, self.generator.get_state(), normalizer)

    def follow(self, update: Update) -> None:
        """Stand where rank 0 stands before an update."""
        self.updates = update.updates
        self.generator.set_state(update.generator.cpu())
        if update.normalizer is not None:
            self.policy.normalizer.load_state_dict(update.normalizer)

    def learn_from(self, batch: Batch) -> None:
        """Take one update: the critics, every `policy_frequency`-th time the actor and the temperature, the targets."""
        self._rows = len(batch.reward)
        batch, self._weight = self.collectives.split(batch, self._rows)
        features = self.policy.features(batch.obs)
        self._update_critic(features, batch)
        self.updates += 1
        if self.updates % self.config.policy_frequency == 0:
            for _ in range(self.config.policy_frequency):
                self._update_actor(features)
        self.targets.follow(self.config.tau)

    def _update_critic(self, features: Tree, batch: Batch) -> None:
        policy = self.policy
        reward, terminated, chunks = (
            torch.from_numpy(array).to(policy.device) for array in (batch.reward, batch.terminated, batch.action)
        )
        with torch.no_grad():
            next_features = policy.features(batch.next_obs)
            next_chunks, next_log_prob = policy.sample(policy.encode(next_features), self._noise(len(reward)))
            next_q = policy.target_q_values(next_features, next_chunks)
            alpha = policy.log_alpha.exp()
            target = soft_target(reward, terminated.float(), next_q, next_log_prob, alpha, self.config.gamma)
        q = policy.q_values(policy.encode(features), chunks)
        loss = critic_loss(q, target)
        self.critic_optimizer.zero_grad()
        backward(loss, self._weight)
        self.collectives.add_up_gradients(self.critic_optimizer)
        self.critic_optimizer.step()
        self._tell(OF_CRITIC, loss, q.mean())

    def _update_actor(self, features: Tree) -> None:
        policy = self.policy
        with torch.no_grad():
            encoded = policy.encode(features)
        chunks, log_prob = policy.sample(encoded, self._noise(len(encoded)))
        loss = actor_loss(log_prob, policy.q_values(encoded, chunks), policy.log_alpha.detach().exp())
        self.actor_optimizer.zero_grad()
        backward(loss, self._weight, list(policy.actor_parameters()))  # spends nothing on the critics' gradient
        self.collectives.add_up_gradients(self.actor_optimizer)
        self.actor_optimizer.step()
        log_prob = log_prob.detach()
        of_alpha = alpha_loss(policy.log_alpha, log_prob, self.target_entropy)
        if self.config.autotune:
            self.alpha_optimizer.zero_grad()
            backward(of_alpha, self._weight)
            self.collectives.add_up_gradients(self.alpha_optimizer)
            self.alpha_optimizer.step()
        self._tell(OF_ACTOR, loss, -log_prob.mean(), policy.log_alpha.exp(), of_alpha)

    def _noise(self, n: int) -> torch.Tensor:
        """Return standard normal noise for n chunks, f4[n, D]: this learner's rows of what all draw alike."""
        rows = n if self.collectives.world_size == 1 else self._rows
        noise = torch.randn(rows, self.policy.numbers, generator=self.generator, device=self.policy.device)
        mine: torch.Tensor = self.collectives.split(noise, rows)[0]
        return mine

    # Metrics -----------------------------------------------------------------------------------------------------

    def _tell(self, names: Sequence[str], *values: torch.Tensor) -> None:
        if self.collectives.world_size > 1:
            shares = self._weight * torch.stack([value.detach().reshape(()) for value in values])
            self.collectives.add_up(shares)
            values = shares.unbind()
        if self.collectives.rank == 0:
            for name, value in zip(names, values, strict=True):
                self._told[name].append(value.detach())

    def metrics(self) -> dict[str, float]:
        """Return the means over the updates since the last call; what none of them told is absent."""
        told = {name: float(torch.stack(values).mean()) for name, values in self._told.items() if values}
        for values in self._told.values():
            values.clear()
        return told

    # State -------------------------------------------------------------------------------------------------------

    def optimizer_state(self) -> dict[str, Any]:
        """Return the state of the optimizers and of the targets' master copy."""
        return {
            "actor": self.actor_optimizer.state_dict(),
            "critic": self.critic_optimizer.state_dict(),
            "alpha": self.alpha_optimizer.state_dict(),
            "targets": self.targets.state_dict(),
        }

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Restore what `optimizer_state` returned, after the policy itself was loaded.

        Raises:
            ValueError: It is the state of other networks.
        """
        self.actor_optimizer.load_state_dict(state["actor"])
        self.critic_optimizer.load_state_dict(state["critic"])
        self.alpha_optimizer.load_state_dict(state["alpha"])
        self.targets.load_state_dict(state["targets"])

    def state_dict(self) -> dict[str, Any]:
        """Return the frames, the count of updates, the generators and the metrics that are not reported yet."""
        return {
            "updates": self.updates,
            "replay": self.replay.state_dict(),
            "rng": self.rng.bit_generator.state,
            "generator": self.generator.get_state(),
            "told": {name: torch.stack(values) if values else None for name, values in self._told.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: The frames do not fit into this buffer.
        """
        self.replay.load_state_dict(state["replay"])
        self.updates = state["updates"]
        self.rng.bit_generator.state = state["rng"]
        self.generator.set_state(state["generator"])
        self._told = {
            name: [] if values is None else list(values.to(self.policy.device).unbind())
            for name, values in state["told"].items()
        }


def build_learner(config: SACConfig, policy_class: type[SACPolicy], policy_config: Any) -> SACLearner:
    """Return a learner on a policy of its own, for another process."""
    return SACLearner(config, policy_class(policy_config))
