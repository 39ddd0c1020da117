"""What a policy hands out besides actions.

A *tree* is a dict, list or tuple of trees, an array (NumPy or torch) with a leading axis of n environments, or None.
"""

import dataclasses
from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""Nested dicts, lists and tuples whose leaves are None or have the environments as their leading axis."""

PolicyRuntimeState: TypeAlias = Tree
"""What a policy knows of the actions it just chose (a sample before clipping, a log-probability, ...)."""

PolicyTrainState: TypeAlias = Tree
"""What the algorithm keeps of the runtime state for learning."""


@dataclasses.dataclass
class PolicyStepState:
    """What the server keeps while a chunk runs: n environments, or one (with a leading axis of 1).

    Attributes:
        obs: The observation the action answered.
        runtime_state: The policy's, from `infer`.
        train_state: The algorithm's, from `derive_train_state`.
        version: The policy version that acted.
    """

    obs: Tree
    runtime_state: PolicyRuntimeState
    train_state: PolicyTrainState
    version: int
