"""An algorithm with the mistakes that the custom-algorithm guide warns of, one for each name in `--algo.mistakes`."""

import dataclasses

from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.registration import register_algo, register_algo_config


@register_algo_config("mistaken")
@dataclasses.dataclass
class MistakenConfig(DummyAlgoConfig):
    """Which mistakes to make."""

    mistakes: tuple[str, ...] = ()
    action_horizon: int = 4
    """What `--policy.action-horizon` says already."""


@register_algo("mistaken")
class Mistaken(DummyAlgorithm):
    """Does right what is not in `--algo.mistakes`."""

    def makes(self, mistake):
        return mistake in self.config.mistakes

    def record_finished_episode(self, info, next_terminated, next_truncated):
        if not self.makes("records-nothing"):
            super().record_finished_episode(info, next_terminated, next_truncated)

    def learn_impl(self):
        before = self.learned_at
        told = super().learn_impl()
        if self.makes("learns-on"):
            self.learned_at = before
        return told

    def create_checkpoint(self):
        before = self.saved_at
        checkpoint = super().create_checkpoint()
        if self.makes("saves-on"):
            self.saved_at = before
        return checkpoint

    def load_checkpoint(self, checkpoint):
        super().load_checkpoint(checkpoint)
        if self.makes("restores-no-counters"):
            self.learned_at = self.saved_at = 0
