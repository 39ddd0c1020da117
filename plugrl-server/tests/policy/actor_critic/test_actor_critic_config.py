"""The shared configuration, as flags and as limits."""

import pytest
import tyro
from plugrl_protocol.spaces import DiscreteSpace
from plugrl_server.common.config_error import ConfigError
from plugrl_server.policy.actor_critic.actor_critic_config import ActorCriticConfig


def test_nothing_needs_to_be_typed():
    ActorCriticConfig().check()
    assert tyro.cli(ActorCriticConfig, args=[]) == ActorCriticConfig()


def test_flags_are_parsed():
    config = tyro.cli(
        ActorCriticConfig,
        args=["--obs-dim", "3", "--hidden-sizes", "32", "16", "--state-keys", "arm", "hand", "--dtype", "bfloat16"],
    )
    assert config == ActorCriticConfig(obs_dim=3, hidden_sizes=(32, 16), state_keys=("arm", "hand"), dtype="bfloat16")


def test_the_action_space_is_no_flag(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(ActorCriticConfig, args=["--help"])
    assert "action-space" not in capsys.readouterr().out
    default = ActorCriticConfig(action_space=DiscreteSpace(2))
    assert tyro.cli(ActorCriticConfig, args=[], default=default).action_space == DiscreteSpace(2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"obs_dim": 0}, r"--policy\.obs-dim 0: must be at least 1"),
        ({"action_dim": -1}, r"--policy\.action-dim -1: must be at least 1"),
        ({"action_horizon": 0}, r"--policy\.action-horizon 0: must be at least 1"),
        ({"hidden_sizes": (64, 0)}, r"--policy\.hidden-sizes 64 0: every width must be at least 1"),
        ({"state_keys": (), "image_keys": ()}, r"--policy\.state-keys and --policy\.image-keys: name at least one"),
    ],
)
def test_what_cannot_work_is_refused(change, problem):
    with pytest.raises(ConfigError, match=problem):
        ActorCriticConfig(**change).check()
