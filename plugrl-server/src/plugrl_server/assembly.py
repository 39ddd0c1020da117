"""From the four names of the command line to a built algorithm: names, pairs, dimensions, agreement of clients."""

import dataclasses
from typing import TYPE_CHECKING, Any

from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import ActionSpace, BoxSpace, Declaration

from plugrl_server.algorithm.registration import ALGORITHMS, list_algos, make_algo
from plugrl_server.common.config_error import ConfigError
from plugrl_server.common.registry import Registry
from plugrl_server.policy.action_spaces import POLICY_FOR_KIND, action_dim
from plugrl_server.policy.base_policy import BasePolicy
from plugrl_server.policy.registration import POLICIES, list_policies, make_policy

if TYPE_CHECKING:
    from plugrl_server.algorithm.base_algorithm import BaseAlgorithm

__all__ = [
    "Agreement",
    "CannotServe",
    "ConfigError",
    "Selection",
    "build",
    "check",
    "missing",
    "pairs_table",
    "warm_up",
    "with_declaration",
]


class CannotServe(Exception):  # noqa: N818 - a refusal of one client, not an error of the run
    """A client cannot be served by this run; the text says why and what would work (it travels in the close, 10.2)."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """A policy and an algorithm, by name and with their configurations."""

    policy_uid: str
    policy_variant: str
    policy_config: Any
    algo_uid: str
    algo_variant: str
    algo_config: Any


# Before anything starts ------------------------------------------------------------------------------------------


def check(selection: Selection) -> None:
    """Check names, pair and configuration, and that both classes can be imported. Imports torch.

    Raises:
        ConfigError: A name is unknown, the pair does not work, a configuration can never learn, a class lacks methods,
            or this machine lacks the device, with advice.
        KeyError: A configuration is registered but the class is not (`'Algorithm <uid> is not registered.'`); the
            notes of the error name the missing import.
    """
    _check_name(POLICIES, selection.policy_uid, selection.policy_variant)
    _check_name(ALGORITHMS, selection.algo_uid, selection.algo_variant)
    _check_pair(selection)
    for config in (selection.policy_config, selection.algo_config):
        if hasattr(config, "check"):
            config.check()
    if hasattr(selection.algo_config, "check_policy"):
        selection.algo_config.check_policy(selection.policy_uid, selection.policy_config)
    for registry, uid in ((POLICIES, selection.policy_uid), (ALGORITHMS, selection.algo_uid)):
        try:
            _check_complete(registry.get_class(uid))
        except ImportError as error:
            raise ConfigError(str(error)) from error
    _check_device(selection.policy_config)


def _check_device(config: Any) -> None:
    """Refuse a device that is not there now, and not when the first client has come."""
    from plugrl_server.policy.base_torch_policy import BaseTorchPolicyConfig, resolve_device

    if isinstance(config, BaseTorchPolicyConfig):
        resolve_device(config.device)


def _check_complete(cls: type) -> None:
    """Refuse a class that cannot be built because its author has not written every method."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    hooks = [text for name, text in getattr(cls, "HOOKS", {}).items() if not callable(getattr(cls, name, None))]
    advice = ": write learn_impl, which learn() calls, and leave learn() alone" if "learn_impl" in missing else ""
    if missing:
        raise ConfigError(f"{cls.__name__} lacks {', '.join(missing)}{advice}.")
    if hooks:
        listed = "\n  ".join(hooks)
        raise ConfigError(
            f"{cls.__name__} derives from DDPAlgorithm without its distributed hooks. Derive from BaseAlgorithm, which "
            f"needs none, or write them:\n  {listed}"
        )


def pairs_table() -> str:
    """Return which algorithm takes which policies, one line per registered algorithm."""
    known = list_policies()
    lines = []
    for uid, variants in list_algos().items():
        accepted = _accepted(next(iter(variants.values())))
        names = "any" if accepted is None else ", ".join(name for name in accepted if name in known) or "none installed"
        lines.append(f"  {uid} <- {names}")
    return "\n".join(lines)


def _check_name(registry: Registry, uid: str, variant: str) -> None:
    variants = registry.variants().get(uid)
    kind = registry.kind.lower()
    if variants is None:
        raise ConfigError(f"No {kind} is called {uid}. {registry.hint(uid)}")
    if variant not in variants:
        raise ConfigError(f"{registry.kind} {uid} has no variant {variant}; it has {', '.join(variants)}.")


def _check_pair(selection: Selection) -> None:
    accepted = _accepted(selection.algo_config)
    written_for = getattr(selection.policy_config, "algorithms", ())
    if accepted is None or selection.policy_uid in accepted or selection.algo_uid in written_for:
        return
    raise ConfigError(
        f"{selection.algo_uid} does not work with {selection.policy_uid}. Pairs that work:\n{pairs_table()}"
    )


def _accepted(config: Any) -> tuple[str, ...] | None:
    accepted: tuple[str, ...] | None = getattr(config, "policies", None)
    return accepted


# Dimensions ------------------------------------------------------------------------------------------------------


def missing(selection: Selection) -> tuple[str, ...]:
    """Return the policy's fields that only a declaration (or a flag) can fill; () when it can be built now."""
    config = selection.policy_config
    names = ["obs_dim", "action_dim"] if hasattr(config, "action_dim") else ["obs_dim", "action_space"]
    if getattr(config, "image_keys", None):
        names.append("image_shapes")
    return tuple(name for name in names if getattr(config, name, ...) is None)


def with_declaration(
    selection: Selection, declaration: Declaration | None, observation: Observation | None
) -> Selection:
    """Return the selection with the policy's dimensions filled from a client's declaration and observation.

    Raises:
        CannotServe: This policy cannot act or see there, a flag says otherwise, or dimensions are still missing.
    """
    config = selection.policy_config
    filled: dict[str, Any] = {}
    if declaration is not None:
        _check_kind(selection, declaration)
        filled |= _filled_action(config, declaration.action)
    if observation is not None:
        filled |= _filled_observation(selection, observation)
    config = dataclasses.replace(config, **filled) if filled else config
    _check_filled(config)
    result = dataclasses.replace(selection, policy_config=config)
    if still := missing(result):
        flags = " and ".join(f"--policy.{name.replace('_', '-')}" for name in still)
        raise CannotServe(f"this client declares no spaces; start the server with {flags}")
    return result


def _check_filled(config: Any) -> None:
    try:
        if hasattr(config, "check"):
            config.check()
    except ConfigError as error:  # such as an image that is too small for the network
        raise CannotServe(str(error)) from None


def _check_kind(selection: Selection, declaration: Declaration) -> None:
    kind = declaration.action.kind
    kinds = getattr(selection.policy_config, "action_kinds", None)
    if kinds is None or kind in kinds:
        return
    needs = "Box" if kinds == ("box",) else "Discrete"
    raise CannotServe(
        f"{selection.policy_uid} needs a {needs} action space; {declaration.env or 'this environment'} has "
        f"{declaration.action}: use {POLICY_FOR_KIND[kind]}"
    )


def _filled_action(config: Any, space: ActionSpace) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    if hasattr(config, "action_space"):
        filled["action_space"] = space
    if hasattr(config, "action_dim"):
        fixed = getattr(type(config), "action_dim", None) is None and config.action_dim is not None
        if fixed and config.action_dim != action_dim(space):
            raise CannotServe(f"action_dim {action_dim(space)}, this run has {config.action_dim} (--policy.action-dim)")
        filled["action_dim"] = action_dim(space)
    return filled


def _filled_observation(selection: Selection, observation: Observation) -> dict[str, Any]:
    config = selection.policy_config
    filled: dict[str, Any] = {}
    keys = getattr(config, "state_keys", None)
    if hasattr(config, "image_keys"):
        filled |= _filled_images(config, observation)
    if hasattr(config, "state_keys"):
        keys = _chosen_states(selection, observation, bool(filled.get("image_keys")))
        filled["state_keys"] = keys
    if hasattr(config, "obs_dim"):
        width = sum(observation.states[key].shape[1] for key in (sorted(observation.states) if keys is None else keys))
        if config.obs_dim is not None and config.obs_dim != width:
            raise CannotServe(f"obs_dim {width}, this run has {config.obs_dim} (--policy.obs-dim)")
        filled["obs_dim"] = width
    return filled


def _filled_images(config: Any, observation: Observation) -> dict[str, Any]:
    """Return the images a policy reads, all of them unless it was told which, and their shapes."""
    images, sent = observation.images, ", ".join(sorted(observation.images)) or "none"
    keys = tuple(sorted(images)) if config.image_keys is None else tuple(config.image_keys)
    if lacking := [key for key in keys if key not in images]:
        raise CannotServe(f"images lack {', '.join(lacking)} (--policy.image-keys); sent: {sent}")
    if not hasattr(config, "image_shapes"):
        return {"image_keys": keys}
    shapes = {key: tuple(images[key].shape[1:]) for key in keys}
    for key, shape in (config.image_shapes or {}).items():
        if key in shapes and shapes[key] != tuple(shape):
            raise CannotServe(f"images.{key} {list(shapes[key])}, this run has {list(shape)}")
    return {"image_keys": keys, "image_shapes": shapes}


def _chosen_states(selection: Selection, observation: Observation, reads_images: bool) -> tuple[str, ...]:
    """Return the states a policy reads, refusing observations it cannot see all of unless it was told to."""
    config, uid = selection.policy_config, selection.policy_uid
    sent = ", ".join(sorted(observation.states)) or "none"
    if config.state_keys is not None:
        if lacking := [key for key in config.state_keys if key not in observation.states]:
            raise CannotServe(f"states lack {', '.join(lacking)} (--policy.state-keys); sent: {sent}")
        return tuple(config.state_keys)
    if not observation.states and not reads_images:
        reads = "states or images" if getattr(config, "image_keys", ()) != () else "states"
        raise CannotServe(f"{uid} reads {reads}, and this environment sends none")
    if observation.images and not hasattr(config, "image_keys"):
        images, flag = ", ".join(sorted(observation.images)), f"--policy.state-keys {sent.replace(',', '')}"
        raise CannotServe(f"{uid} sees no images ({images}); for the states alone: {flag}")
    return tuple(sorted(observation.states))


# Building --------------------------------------------------------------------------------------------------------


def build(selection: Selection, *, seed: int) -> "BaseAlgorithm":
    """Seed, then make the policy, make the algorithm and let it build its optimizers, in this order.

    The caller loads a checkpoint next, where it resumes, and calls `warm_up` last.
    """
    from plugrl_server.learning.rng import seed_everything

    seed_everything(seed)
    policy = make_policy(selection.policy_uid, selection.policy_config)
    algorithm = make_algo(selection.algo_uid, selection.algo_config, policy)
    algorithm.init_optimizers()
    return algorithm


def warm_up(algorithm: "BaseAlgorithm", n: int = 1) -> None:
    """Run one inference of n environments on zeros; the first may compile. Random generators are left as they were."""
    from plugrl_server.learning.rng import preserved

    with preserved(algorithm.policy):
        _, runtime_state = algorithm.infer(algorithm.policy.fake_obs(n))
        algorithm.derive_train_state(runtime_state)


# Agreement of clients --------------------------------------------------------------------------------------------


class Agreement:
    """What the clients of a run agree on. What the first says holds for all; a policy that was built before hears it.

    Args:
        selection: As it was built, dimensions filled.
        policy: The policy that was built.
    """

    def __init__(self, selection: Selection, policy: BasePolicy) -> None:
        self.selection = selection
        self.policy = policy
        self.action_space: ActionSpace | None = getattr(selection.policy_config, "action_space", None)
        self._layout: dict[str, tuple[tuple[int, ...], str]] = {}

    def admit(self, declaration: Declaration | None, observation: Observation) -> str | None:
        """Return why a client does not fit this run (`action_dim 3, this run has 6`), None when it does."""
        # All is compared before any of it is kept: a client that is refused must not decide for those after it.
        problem = None if declaration is None else self._action_problem(declaration)
        problem = problem or self._observation_problem(observation)
        if problem is None and declaration is not None and self.action_space is None:
            problem = self._adopt(declaration.action)
        if problem is None:
            self._layout = {**self._read_layout(observation), **self._layout}
        return problem

    def _action_problem(self, declaration: Declaration) -> str | None:
        if self.action_space is not None:
            return _space_difference(declaration.action, self.action_space)
        try:
            with_declaration(self.selection, declaration, None)
        except CannotServe as error:
            return str(error)
        return None

    def _adopt(self, space: ActionSpace) -> str | None:
        try:
            self.policy.adopt_action_space(space)
        except ValueError as error:
            return str(error)
        self.action_space = space
        return None

    def _observation_problem(self, observation: Observation) -> str | None:
        obs = {"images": observation.images, "states": observation.states, "text": observation.text}
        if (problem := self.policy.check_observation(obs)) is not None:
            return problem
        layout = self._read_layout(observation)
        if self._layout and not self._takes_any_names and layout.keys() != self._layout.keys():
            return f"observation {_names(layout)}, this run has {_names(self._layout)}"
        for name, (shape, dtype) in layout.items():
            known_shape, known_dtype = self._layout.get(name, (shape, dtype))
            if (shape, dtype) != (known_shape, known_dtype):
                return f"{name} {dtype}{list(shape)}, this run has {known_dtype}{list(known_shape)}"
        return None

    @property
    def _takes_any_names(self) -> bool:
        """Not a policy of a fixed width, which was built by flags and reads all states of the first observation."""
        return self.policy.state_keys is None and not hasattr(self.selection.policy_config, "obs_dim")

    def _read_layout(self, observation: Observation) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return shape and dtype of what the policy reads."""
        states, images = self.policy.state_keys, self.policy.image_keys
        if states is None:
            states = tuple(observation.states)
        if images is None:
            images = tuple(observation.images) if self._takes_any_names else ()
        named: dict[str, Any] = {f"states.{key}": observation.states[key] for key in states}
        named |= {f"images.{key}": observation.images[key] for key in images}
        return {name: (array.shape[1:], array.dtype.name) for name, array in sorted(named.items())}


def _space_difference(theirs: ActionSpace, ours: ActionSpace) -> str | None:
    if theirs == ours:
        return None
    if isinstance(theirs, BoxSpace) and isinstance(ours, BoxSpace):
        if action_dim(theirs) != action_dim(ours):
            return f"action_dim {action_dim(theirs)}, this run has {action_dim(ours)}"
        if theirs.shape != ours.shape:
            return f"action shape {list(theirs.shape)}, this run has {list(ours.shape)}"
        if theirs.dtype != ours.dtype:
            return f"action dtype {theirs.dtype}, this run has {ours.dtype}"
        return f"action bounds {_bounds(theirs)}, this run has {_bounds(ours)}"
    return f"action space {theirs}, this run has {ours}"


def _bounds(space: BoxSpace) -> str:
    return f"{space.low.ravel().tolist()[:4]} to {space.high.ravel().tolist()[:4]}"


def _names(layout: dict[str, Any]) -> str:
    return ", ".join(layout) or "nothing"
