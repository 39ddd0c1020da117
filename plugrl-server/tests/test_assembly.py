"""From names to a built algorithm: what is refused with which advice, and what clients must agree on."""

import dataclasses
import subprocess
import sys
import uuid

import numpy as np
import pytest
import torch
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration, DiscreteSpace, MultiDiscreteSpace
from plugrl_server import assembly
from plugrl_server.algorithm.base_algorithm import BaseAlgoConfig
from plugrl_server.algorithm.distributed import DDPAlgorithm
from plugrl_server.algorithm.dummy.dummy_config import DummyAlgoConfig
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.algorithm.registration import ALGORITHMS, register_algo_config
from plugrl_server.assembly import Agreement, CannotServe, ConfigError, Selection
from plugrl_server.policy.base_policy import BasePolicy, BasePolicyConfig
from plugrl_server.policy.categorical.categorical_policy_config import CategoricalPolicyConfig
from plugrl_server.policy.dummy.dummy_policy_config import DummyPolicyConfig
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.policy.registration import register_policy, register_policy_config


def gaussian(**changes):
    config = GaussianPolicyConfig(device="cpu", **changes)
    return Selection("gaussian-policy", "default", config, "ppo", "default", PPOConfig())


def dummy():
    return Selection("dummy-policy", "default", DummyPolicyConfig(), "dummy", "default", DummyAlgoConfig())


def box(shape=(2,), bound=1.0, dtype="f4"):
    return BoxSpace(shape, np.dtype(dtype), np.full(shape, -bound, dtype), np.full(shape, bound, dtype))


@dataclasses.dataclass
class Blind(BasePolicyConfig):
    """Of a policy that reads states only."""

    state_keys: tuple[str, ...] | None = None
    obs_dim: int | None = None


def declared(space=None, env="Pendulum-v1"):
    return Declaration(space or box(), env=env)


def observed(images=(), side=40, **widths):
    return Observation(
        images={name: np.zeros((1, side, side, 3), np.uint8) for name in images},
        states={name: np.zeros((1, width)) for name, width in (widths or {"state": 3}).items()},
        text=[""],
    )


# Before anything starts ------------------------------------------------------------------------------------------


def test_a_pair_that_works_passes():
    assembly.check(gaussian())
    assembly.check(dummy())


def test_lesson_24_a_pair_that_does_not_is_refused_with_the_pairs_that_do():
    selection = dataclasses.replace(dummy(), algo_uid="ppo", algo_config=PPOConfig())
    with pytest.raises(ConfigError) as error:
        assembly.check(selection)
    text = str(error.value)
    assert text.startswith("ppo does not work with dummy-policy. Pairs that work:\n")
    assert "  ppo <- gaussian-policy, categorical-policy" in text
    assert "  dummy <- any" in text


def test_an_outside_algorithm_takes_any_policy_unless_it_says_otherwise():
    @dataclasses.dataclass
    class Open(BaseAlgoConfig):
        pass

    @dataclasses.dataclass
    class Picky(BaseAlgoConfig):
        policies = ("gaussian-policy",)

    for config, refused in ((Open, False), (Picky, True)):
        uid = f"outside-{uuid.uuid4().hex[:6]}"
        register_algo_config(uid)(config)
        selection = dataclasses.replace(dummy(), algo_uid=uid, algo_config=config())
        with pytest.raises(ConfigError if refused else KeyError):  # the class is missing on purpose
            assembly.check(selection)


def test_an_outside_policy_may_say_which_builtin_algorithm_it_is_written_for():
    uid = f"outside-{uuid.uuid4().hex[:6]}"

    @register_policy_config(uid)
    @dataclasses.dataclass
    class Mine(BasePolicyConfig):
        algorithms = ("ppo",)

    @register_policy(uid)
    class Policy(BasePolicy):
        get_action_and_runtime_state = None

    assembly.check(Selection(uid, "default", Mine(), "ppo", "default", PPOConfig()))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"policy_uid": "gausian-policy"}, "No policy is called gausian-policy. Did you mean gaussian-policy"),
        ({"algo_uid": "pppo"}, "No algorithm is called pppo. Did you mean ppo"),
        (
            {"algo_variant": "humanoid"},
            "Algorithm ppo has no variant humanoid; it has default, atari, discrete, dppo-square, pendulum.",
        ),
        ({"policy_variant": "x"}, "Policy gaussian-policy has no variant x; it has default."),
    ],
)
def test_lesson_25_unknown_names_are_refused_with_the_nearest(change, problem):
    with pytest.raises(ConfigError) as error:
        assembly.check(dataclasses.replace(gaussian(), **change))
    assert str(error.value).startswith(problem)


def test_config_registered_but_class_not_imported_is_the_documented_key_error():
    uid = f"half-{uuid.uuid4().hex[:6]}"

    @register_algo_config(uid)
    @dataclasses.dataclass
    class Half(BaseAlgoConfig):
        pass

    with pytest.raises(KeyError) as error:
        assembly.check(dataclasses.replace(dummy(), algo_uid=uid, algo_config=Half()))
    assert str(error.value) == f"'Algorithm {uid} is not registered.'"
    assert __name__ in error.value.__notes__[0]


def test_rule_8_configurations_are_checked():
    with pytest.raises(ConfigError, match="buffer-size"):
        assembly.check(dataclasses.replace(gaussian(), algo_config=PPOConfig(buffer_size=200_000)))
    with pytest.raises(ConfigError, match="action-horizon"):
        assembly.check(gaussian(action_horizon=0))


def test_lesson_24_a_device_that_is_not_there_is_refused_before_anything_starts():
    wrong = dataclasses.replace(gaussian(), policy_config=GaussianPolicyConfig(device="gpu"))
    with pytest.raises(ConfigError, match=r"^--policy\.device gpu: no such torch device"):
        assembly.check(wrong)


def test_importing_the_module_imports_no_torch():
    program = "import sys, plugrl_server.assembly, plugrl_server; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


# Dimensions ------------------------------------------------------------------------------------------------------


def test_missing_names_what_only_a_declaration_or_a_flag_can_fill():
    assert assembly.missing(gaussian()) == ("obs_dim", "action_dim")
    assert assembly.missing(gaussian(obs_dim=3)) == ("action_dim",)
    assert assembly.missing(gaussian(obs_dim=3, action_dim=1)) == ()
    assert assembly.missing(dummy()) == ()


def test_an_outside_policy_says_it_by_the_same_field_names():
    @dataclasses.dataclass
    class SpaceOnly(BasePolicyConfig):
        action_space: object = None

    @dataclasses.dataclass
    class Nothing(BasePolicyConfig):
        pass

    selection = dataclasses.replace(gaussian(), policy_config=SpaceOnly())
    assert assembly.missing(selection) == ("action_space",)
    filled = assembly.with_declaration(selection, declared(), observed())
    assert filled.policy_config.action_space == box()
    selection = dataclasses.replace(gaussian(), policy_config=Nothing())
    assert assembly.missing(selection) == ()
    assert assembly.with_declaration(selection, declared(), observed()) is not None


def test_a_declaration_fills_everything():
    config = assembly.with_declaration(gaussian(), declared(), observed(b=2, a=3)).policy_config
    assert (config.obs_dim, config.action_dim, config.action_space) == (5, 2, box())
    assert config.state_keys == ("a", "b")
    assert gaussian().policy_config.obs_dim is None


def test_discrete_action_dims_count_choices():
    selection = dataclasses.replace(
        gaussian(), policy_uid="categorical-policy", policy_config=CategoricalPolicyConfig()
    )
    space = MultiDiscreteSpace(np.array([2, 5]))
    assert assembly.with_declaration(selection, declared(space), observed()).policy_config.action_dim == 7


def test_filling_twice_changes_nothing():
    once = assembly.with_declaration(gaussian(), declared(), observed())
    assert assembly.with_declaration(once, declared(), observed()) == once


def test_chosen_states_count_alone():
    selection = gaussian(state_keys=("arm",), image_keys=())
    config = assembly.with_declaration(selection, declared(), observed(("cam",), arm=2, b=9)).policy_config
    assert (config.obs_dim, config.image_keys, config.image_shapes) == (2, (), {})


@pytest.mark.parametrize(
    ("selection", "declaration", "observation", "problem"),
    [
        (
            gaussian(),
            declared(DiscreteSpace(2), env="CartPole-v1"),
            observed(),
            "gaussian-policy needs a Box action space; CartPole-v1 has Discrete(2): use categorical-policy",
        ),
        (
            dataclasses.replace(gaussian(), policy_uid="categorical-policy", policy_config=CategoricalPolicyConfig()),
            declared(box((3,)), env=None),
            observed(),
            "categorical-policy needs a Discrete action space; this environment has Box(3,): use gaussian-policy",
        ),
        (
            dataclasses.replace(gaussian(), policy_uid="categorical-policy", policy_config=CategoricalPolicyConfig()),
            declared(DiscreteSpace(2**40)),
            observed(),
            "--policy.action-dim 1099511627776: a categorical policy has at most 1048576 choices.",
        ),
        (
            dataclasses.replace(gaussian(), policy_uid="mine", policy_config=Blind()),
            declared(),
            observed(("front", "wrist"), state=3, arm=1),
            "mine sees no images (front, wrist); for the states alone: --policy.state-keys arm state",
        ),
        (gaussian(action_dim=6), declared(), observed(), "action_dim 2, this run has 6 (--policy.action-dim)"),
        (gaussian(obs_dim=6), declared(), observed(), "obs_dim 3, this run has 6 (--policy.obs-dim)"),
        (
            gaussian(state_keys=("arm",)),
            declared(),
            observed(),
            "states lack arm (--policy.state-keys); sent: state",
        ),
        (gaussian(), None, observed(), "this client declares no spaces; start the server with --policy.action-dim"),
        (
            gaussian(),
            None,
            None,
            "this client declares no spaces; start the server with --policy.obs-dim and --policy.action-dim",
        ),
    ],
)
def test_a_client_that_cannot_be_served_gets_advice(selection, declaration, observation, problem):
    with pytest.raises(CannotServe) as error:
        assembly.with_declaration(selection, declaration, observation)
    assert str(error.value) == problem
    assert len(f"plugrl-server-reject: {problem}") <= 123  # longer reasons are cut


def test_an_environment_with_nothing_to_read_is_refused():
    nothing = Observation(images={}, states={}, text=[""])
    with pytest.raises(CannotServe, match="gaussian-policy reads states or images, and this environment sends none"):
        assembly.with_declaration(gaussian(), declared(), nothing)
    pixels = observed(("cam",))
    pixels = Observation(images=pixels.images, states={}, text=[""])
    with pytest.raises(CannotServe, match="gaussian-policy reads states, and this environment sends none"):
        assembly.with_declaration(gaussian(image_keys=()), declared(), pixels)


# Building --------------------------------------------------------------------------------------------------------


def filled():
    return assembly.with_declaration(gaussian(), declared(), observed())


def test_the_seed_decides_everything():
    first, second, third = (assembly.build(filled(), seed=seed) for seed in (1, 1, 2))
    obs = first.policy.fake_obs(4)
    action = first.infer(obs)[0]
    np.testing.assert_array_equal(action, second.infer(obs)[0])
    assert not np.array_equal(action, third.infer(obs)[0])


def test_optimizers_are_built_after_the_algorithm():
    uid = f"order-{uuid.uuid4().hex[:6]}"
    calls = []
    from plugrl_server.algorithm.dummy.dummy import DummyAlgorithm
    from plugrl_server.algorithm.registration import register_algo

    @register_algo_config(uid)
    @dataclasses.dataclass
    class OrderConfig(DummyAlgoConfig):
        pass

    @register_algo(uid)
    class Order(DummyAlgorithm):
        def __init__(self, config, policy):
            super().__init__(config=config, policy=policy)
            calls.append("algorithm")

        def init_optimizers(self):
            calls.append("optimizers")

    assembly.build(dataclasses.replace(dummy(), algo_uid=uid, algo_config=OrderConfig()), seed=0)
    assert calls == ["algorithm", "optimizers"]


def test_rule_9_a_warm_up_leaves_the_generators_alone():
    warm, cold = assembly.build(filled(), seed=3), assembly.build(filled(), seed=3)
    assembly.warm_up(warm, n=8)
    obs = warm.policy.fake_obs(2)
    np.testing.assert_array_equal(warm.infer(obs)[0], cold.infer(obs)[0])
    assert torch.equal(torch.get_rng_state(), torch.get_rng_state())


# Agreement of clients --------------------------------------------------------------------------------------------


def agreement(selection=None):
    selection = selection or filled()
    return Agreement(selection, assembly.build(selection, seed=0).policy)


def test_later_clients_that_agree_are_admitted():
    agreed = agreement()
    for _ in range(2):
        assert agreed.admit(declared(env="Other-v1"), observed()) is None
        assert agreed.admit(None, observed()) is None


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (box((3,)), "action_dim 3, this run has 2"),
        (box((2, 1)), "action shape [2, 1], this run has [2]"),
        (box(dtype="f8"), "action dtype float64, this run has float32"),
        (box(bound=2.0), "action bounds [-2.0, -2.0] to [2.0, 2.0], this run has [-1.0, -1.0] to [1.0, 1.0]"),
        (DiscreteSpace(2), "action space Discrete(2), this run has Box(2,)"),
    ],
)
def test_another_action_space_is_named_with_both_sides(space, problem):
    assert agreement().admit(declared(space), observed()) == problem


def test_other_observations_are_named_with_both_sides():
    agreed = agreement()
    assert agreed.admit(declared(), observed()) is None
    assert agreed.admit(declared(), observed(state=4)) == "obs_dim 4, this run has 3"
    assert "lacks state" in agreed.admit(declared(), observed(other=3))
    narrow = Observation(images={}, states={"state": np.zeros((1, 3), np.float32)}, text=[""])
    assert agreed.admit(declared(), narrow) == "states.state float32[3], this run has float64[3]"
    assert agreed.admit(declared(), observed(state=3, extra=7)) is None


def test_the_states_a_policy_built_by_flags_reads_are_agreed_on_too():
    agreed = agreement(gaussian(obs_dim=3, action_dim=2))
    assert agreed.admit(None, observed(arm=1, base=2)) is None
    assert agreed.admit(None, observed(arm=2, base=1)) == "states.arm float64[2], this run has float64[1]"
    assert agreed.admit(None, observed(state=3)) == "observation states.state, this run has states.arm, states.base"


def test_a_policy_built_by_flags_hears_the_first_declaration():
    agreed = agreement(gaussian(obs_dim=3, action_dim=2))
    assert agreed.admit(None, observed()) is None
    assert agreed.action_space is None
    assert agreed.admit(declared(box((4,))), observed()) == "action_dim 4, this run has 2 (--policy.action-dim)"
    assert agreed.admit(declared(box(bound=0.1)), observed()) is None
    assert agreed.action_space == box(bound=0.1)
    obs = {"images": {}, "states": {"state": np.zeros((50, 3))}, "text": np.full(50, "")}
    assert np.abs(agreed.policy.get_action_and_runtime_state(obs)[0]).max() <= 0.1
    assert agreed.admit(declared(), observed()).startswith("action bounds")


def test_lesson_1_a_client_that_is_refused_decides_nothing_for_those_after_it():
    agreed = agreement(gaussian(obs_dim=3, action_dim=2))
    assert agreed.admit(declared(box(bound=5.0)), observed(state=4)) == "obs_dim 4, this run has 3"
    assert agreed.admit(declared(box((4,))), observed(arm=1, base=2)).startswith("action_dim 4")
    assert agreed.admit(declared(), observed()) is None
    assert agreed.action_space == box()


def test_the_dummy_policy_takes_the_first_declared_space_and_any_observation():
    agreed = agreement(dummy())
    assert agreed.admit(declared(DiscreteSpace(3)), observed()) is None
    assert agreed.policy.get_action_and_runtime_state({"text": np.full(2, "")})[0].shape == (2, 4)
    assert agreed.admit(declared(DiscreteSpace(3)), observed(("cam",), other=9)) is None
    assert agreed.admit(declared(DiscreteSpace(2)), observed()) == "action space Discrete(2), this run has Discrete(3)"


def test_where_any_names_may_come_those_that_come_again_have_one_shape():
    agreed = agreement(dummy())
    assert agreed.admit(declared(), observed()) is None
    assert agreed.admit(declared(), observed(other=9)) is None
    assert agreed.admit(declared(), observed(state=4)) == "states.state float64[4], this run has float64[3]"
    assert agreed.admit(declared(), observed(("cam",), other=8)) == "states.other float64[8], this run has float64[9]"
    assert agreed.admit(declared(), observed(("cam",), other=9)) is None
    flat = Observation(images={"cam": np.zeros((1, 1, 1, 3), np.uint8)}, states={}, text=[""])
    assert agreed.admit(None, flat).startswith("images.cam uint8[1, 1, 3], this run has uint8[")


class _Unfinished(DDPAlgorithm):
    infer = feedback = should_learn = should_save = should_stop = create_checkpoint = load_checkpoint = None


class _OverridesLearn(_Unfinished):
    def learn(self):
        return 0, {}


class _WithoutHooks(_Unfinished):
    def learn_impl(self):
        return 0, {}


@pytest.mark.parametrize(
    ("unfinished", "advice"),
    [
        (_OverridesLearn, r"_OverridesLearn lacks learn_impl: write learn_impl, which learn\(\) calls"),
        (_WithoutHooks, r"(?s)Derive from BaseAlgorithm, which needs none, or write them:.*learn_batch"),
    ],
    ids=["learn", "hooks"],
)
def test_a_class_that_cannot_be_built_is_refused_with_advice(monkeypatch, unfinished, advice):
    monkeypatch.setattr(ALGORITHMS, "get_class", lambda uid: unfinished)
    with pytest.raises(ConfigError, match=advice):
        assembly.check(dummy())
