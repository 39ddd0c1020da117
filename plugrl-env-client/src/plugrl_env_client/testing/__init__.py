"""Test kit for environments of one's own: inherit the contract, say how yours is made, run pytest."""

from plugrl_env_client.testing.comparing import ContractBroken
from plugrl_env_client.testing.driving import Drive
from plugrl_env_client.testing.env_contract import EnvContract

__all__ = ["ContractBroken", "Drive", "EnvContract"]
