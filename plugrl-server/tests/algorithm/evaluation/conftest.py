"""A run folder with trained policies in it."""

import dataclasses
import json

import numpy as np
import pytest
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration
from plugrl_server import assembly
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.common.checkpoint_manager import CheckpointManager
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.record.config_json import config_to_json
from plugrl_server.record.run_record import Part, RunRecord

SPACE = BoxSpace((2,), np.dtype("f4"), np.full(2, -1, "f4"), np.full(2, 1, "f4"))


@dataclasses.dataclass
class Trained:
    """A run folder, its two checkpoints' policies by step, and the configuration they were built with."""

    folder: object
    policies: dict
    config: GaussianPolicyConfig


@pytest.fixture
def trained(tmp_path):
    """Checkpoints of steps 5 and 10 of a small Gaussian policy, whose normaliser has seen something."""
    declaration, seen = Declaration(SPACE), Observation({}, {"s": np.zeros((1, 3))}, [""])
    policy_config = GaussianPolicyConfig(hidden_sizes=(8,), device="cpu")
    chosen = assembly.Selection("gaussian-policy", "default", policy_config, "ppo", "default", PPOConfig())
    chosen = assembly.with_declaration(chosen, declaration, seen)
    policies = {}
    for seed, step in ((1, 5), (2, 10)):
        algorithm = assembly.build(chosen, seed=seed)
        algorithm.global_step = step
        rows = {"images": {}, "states": {"s": np.random.default_rng(seed).normal(5, 3, (20, 3))}, "text": [""] * 20}
        observe_into_normalizer(algorithm.policy, rows)
        CheckpointManager(tmp_path / "run/checkpoints").save(algorithm.create_checkpoint())
        policies[step] = algorithm.policy
    policy, algo = (
        Part(uid, "default", cls.__module__, cls.__qualname__, config_to_json(config))
        for uid, cls, config in (
            ("gaussian-policy", type(algorithm.policy), chosen.policy_config),
            ("ppo", type(algorithm), chosen.algo_config),
        )
    )
    record = RunRecord(policy, algo, {}, 2, {}, [], declaration, seen)
    (tmp_path / "run/config.json").write_text(json.dumps(record.to_json()))
    return Trained(tmp_path / "run", policies, chosen.policy_config)


def observe_into_normalizer(policy, rows):
    import torch

    policy.update_normalizer(torch.from_numpy(policy.observe(rows)))
