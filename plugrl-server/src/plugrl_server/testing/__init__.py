"""Test kits for algorithms and policies of one's own: inherit a contract, say how yours is made, run pytest."""

from plugrl_server.testing.algorithm_contract import AlgorithmContract
from plugrl_server.testing.comparing import ContractBroken
from plugrl_server.testing.policy_contract import PolicyContract
from plugrl_server.testing.tiny_env import TinyEnv

__all__ = ["AlgorithmContract", "ContractBroken", "PolicyContract", "TinyEnv"]
