"""Every preset of every algorithm, found through the registry, takes a whole learn step on a fitting policy."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from plugrl_protocol.spaces import DiscreteSpace
from plugrl_server import assembly
from plugrl_server.algorithm.builtins import BUILTIN_ALGORITHMS
from plugrl_server.algorithm.registration import list_algos, make_algo
from plugrl_server.assembly import Selection
from plugrl_server.policy.registration import list_policies, make_policy
from plugrl_server.testing import AlgorithmContract
from plugrl_server.testing.contract import changed, weights

PRESETS = [(built_in.uid, variant) for built_in in BUILTIN_ALGORITHMS for variant in list_algos()[built_in.uid]]
LEARN_NOTHING = ("dummy", "eval")
MOST = {"buffer_size": 48, "batch_size": 16, "update_epochs": 2, "learning_starts": 16, "report_interval": 4}
"""What a preset's own number is lowered to where it is larger; all other fields stay as the preset has them."""


@pytest.fixture(autouse=True)
def trained(monkeypatch):
    """Presets for fine-tuning refuse random weights: these policies say that theirs are trained."""
    for uid in ("fpo-policy", "dppo-policy"):
        for config in list_policies()[uid].values():
            monkeypatch.setattr(config, "brings_weights", True)


@dataclasses.dataclass
class Fit:
    """A small policy for a preset, and what the environment needs in order to have it act."""

    policy: str
    variant: str = "default"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    env: dict[str, Any] = dataclasses.field(default_factory=dict)


HIDDEN = {"hidden_sizes": (16, 16)}
ACTOR_AND_CRITIC = {"actor_hidden_sizes": (16, 16, 16), "critic_hidden_sizes": (16, 16, 16)}
FITS = {
    "ppo": Fit("gaussian-policy", options=HIDDEN),
    "ppo discrete": Fit("categorical-policy", options=HIDDEN, env={"action_space": DiscreteSpace(2)}),
    "ppo atari": Fit(
        "categorical-policy",
        "atari",
        env={"action_space": DiscreteSpace(6), "states": {}, "images": {"screen": (84, 84, 4)}},
    ),
    "ppo dppo-square": Fit("dppo-gaussian-policy", options=ACTOR_AND_CRITIC),
    "sac": Fit("sac-policy", options=HIDDEN),
    "fpo": Fit("fpo-policy", options={**ACTOR_AND_CRITIC, "num_steps": 3}),
    "fpo cheetah": Fit("fpo-policy", "exploring", {**ACTOR_AND_CRITIC, "num_steps": 3}),
    "dppo": Fit("dppo-policy", options={**ACTOR_AND_CRITIC, "num_steps": 12}),
    "dummy": Fit("dummy-policy"),
    "eval": Fit("gaussian-policy", options=HIDDEN),
}
"""By `uid variant`, or by `uid` for every other variant."""


def selected(uid, variant):
    """The preset as it is, on its policy."""
    fit = FITS.get(f"{uid} {variant}", FITS[uid])
    policy_config = list_policies()[fit.policy][fit.variant](device="cpu", **fit.options)
    return fit, Selection(fit.policy, fit.variant, policy_config, uid, variant, list_algos()[uid][variant]())


def lowered(config):
    """The preset's configuration with the numbers of `MOST` at most."""
    own = {name: getattr(config, name) for name in MOST if hasattr(config, name)}
    return dataclasses.replace(config, **{name: min(number, MOST[name]) for name, number in own.items()})


class Preset(AlgorithmContract):
    """What drives one preset: the server's own trainer, without a server."""

    num_envs = 4

    def __init__(self, uid, variant):
        fit, self.selection = selected(uid, variant)
        for name, value in fit.env.items():
            setattr(self, name, value)

    def make_algorithm(self):
        chosen = self.selection
        policy = make_policy(chosen.policy_uid, self.sized(chosen.policy_config))
        return make_algo(chosen.algo_uid, lowered(chosen.algo_config), policy)


Preset.__test__ = False


def test_every_fit_is_of_a_preset():
    named = {f"{uid} {variant}" for uid, variant in PRESETS} | {uid for uid, _ in PRESETS}
    assert FITS.keys() <= named
    assert len(PRESETS) > 15


@pytest.mark.parametrize(("uid", "variant"), [preset for preset in PRESETS if preset[0] != "eval"])
def test_its_own_numbers_can_learn_and_go_with_the_policy(uid, variant):
    assembly.check(selected(uid, variant)[1])


@pytest.mark.parametrize(("uid", "variant"), [preset for preset in PRESETS if preset[0] not in LEARN_NOTHING])
def test_a_preset_learns_finitely_and_moves_every_weight(uid, variant):
    """One learn step, and those before it in which the critic warms up alone."""
    with Preset(uid, variant).rehearsal() as run:
        config, policy = run.algorithm.config, run.algorithm.policy
        config.check()
        before, steps = weights(policy), 1 + getattr(config, "critic_warmup_iterations", 0)
        assert run.until(lambda: sum(metrics is not None for metrics in run.metrics) >= steps, 200)
        told = [metrics for metrics in run.metrics if metrics is not None]
        assert all(np.isfinite(value) for metrics in told for value in metrics.values())
        assert {name.split("/")[0] for name in told[-1]} >= {"losses"}
        after = weights(policy)
        assert all(np.isfinite(value).all() for value in after.values())
        wanted = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
        assert wanted
        assert wanted <= changed(before, after)


@pytest.mark.parametrize(("uid", "variant"), [preset for preset in PRESETS if preset[0] in LEARN_NOTHING])
def test_a_preset_that_learns_nothing_acts_and_changes_nothing(uid, variant):
    with Preset(uid, variant).rehearsal() as run:
        before = weights(run.algorithm.policy)
        for _ in range(20):
            run.exchange()
        assert run.algorithm.global_step == 80
        assert not changed(before, weights(run.algorithm.policy))
        assert not run.metrics
