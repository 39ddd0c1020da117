"""An algorithm that stores nothing but a record of what it was handed, one JSON object per transition."""

import dataclasses
import json
from pathlib import Path

import numpy as np
from plugrl_server.algorithm.base_algorithm import BaseAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.registration import register_algo, register_algo_config
from plugrl_server.common.checkpoint_manager import Checkpoint


@register_algo_config("recorder")
@dataclasses.dataclass
class RecorderConfig(DummyAlgoConfig):
    """`learn_every` makes policy versions move on, so that some frames come too late to be stored."""

    file: str = ""


@register_algo("recorder")
class Recorder(BaseAlgorithm):
    """Writes every stored transition to `--algo.file`, and counts the discarded ones there as well."""

    def __init__(self, config, policy):
        super().__init__(config=config, policy=policy)
        self.file = Path(config.file).open("a", buffering=1)  # noqa: SIM115 - open as long as the run
        self.stored_at_learn = 0

    def infer(self, obs):
        action, _ = self.policy.get_action_and_runtime_state(obs)
        return action, {"action": np.asarray(action)}

    def feedback(self, *, obs, runtime_state, next_obs, prev_node, info, train_state=None, **scalars):
        self.global_step += 1
        self.record_finished_episode(info, scalars["next_terminated"], scalars["next_truncated"])
        row = {
            "obs": obs["states"]["id"][0].tolist(),
            "next_obs": next_obs["states"]["id"][0].tolist(),
            "action": runtime_state["action"][0, :, 0].tolist(),
            "prev_node": list(prev_node),
            "node": self.global_step,
            **scalars,
        }
        self.file.write(json.dumps(row) + "\n")
        return (self.global_step, "recorder"), self.global_step, {}

    def discard_feedback(self, *, info, next_terminated, next_truncated):
        super().discard_feedback(info=info, next_terminated=next_terminated, next_truncated=next_truncated)
        self.file.write(json.dumps({"discarded": True}) + "\n")

    def learn_impl(self):
        self.stored_at_learn = self.global_step
        return self.global_step, {"losses/none": 0.0}

    def should_learn(self):
        every = self.config.learn_every
        return every is not None and self.global_step - self.stored_at_learn >= every

    def should_save(self):
        return False

    def should_stop(self):
        return self.config.global_steps is not None and self.global_step >= self.config.global_steps

    def create_checkpoint(self):
        return Checkpoint(step=self.global_step, model=None, optimizer=None, meta={})

    def load_checkpoint(self, checkpoint):
        self.global_step = checkpoint.step
