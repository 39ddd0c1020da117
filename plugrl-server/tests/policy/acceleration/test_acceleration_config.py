"""The flags, at every policy that has them."""

import pytest
import tyro
from plugrl_server.policy.acceleration.acceleration_config import AccelerationConfig
from plugrl_server.policy.registration import list_policies

HAVE_THEM = ("gaussian-policy", "categorical-policy", "dppo-gaussian-policy", "sac-policy", "fpo-policy", "dppo-policy")


@pytest.mark.parametrize("uid", HAVE_THEM)
def test_every_variant_takes_the_flags_and_starts_without_them(uid):
    for config_class in list_policies()[uid].values():
        plain, quick = (tyro.cli(config_class, args=args) for args in ([], ["--autocast", "bf16", "--compile"]))
        assert isinstance(plain, AccelerationConfig)
        assert (plain.autocast, plain.compile) == ("off", False)
        assert (quick.autocast, quick.compile) == ("bf16", True)


def test_other_numbers_are_no_choice(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(AccelerationConfig, args=["--autocast", "fp16"])
    assert "bf16" in capsys.readouterr().err
