"""Names of environment families: the built-in ones, listed without importing them, and those that users add.

A user registers a family by the two decorators below, in a module that is imported before the name is looked up: by
`--import my_pkg.my_env`, by an entry point of the group `plugrl.envs` (named after the UID), or by an import before
`main()`.
"""

import dataclasses
import difflib
import importlib
import importlib.metadata
import importlib.util
import logging
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError

ENTRY_POINT_GROUP = "plugrl.envs"

_logger = logging.getLogger(__name__)
_Factory = TypeVar("_Factory", bound=Callable[..., BaseEnv])
_Config = TypeVar("_Config", bound=type[BaseEnvConfig])


@dataclasses.dataclass(frozen=True)
class Family:
    """A family as it is listed, without importing it.

    Attributes:
        uid: its name on the command line.
        summary: one line.
        extra: the extra of this package that it needs, or None.
        needs: the module which that extra brings.
        module: where a built-in family lives; None for one that was registered or announced by an entry point.
        also: what has to be installed beside it: where an extra's newest version does not do, and what is no extra
            because it caps packages that others share.
    """

    uid: str
    summary: str
    extra: str | None = None
    needs: str | None = None
    module: str | None = None
    also: tuple[str, ...] = ()

    @property
    def installed(self) -> bool:
        """Whether everything that the family needs can be imported."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None

    @property
    def install_command(self) -> str:
        """How to install what is missing, or to run with it."""
        return install_command(self.extra, self.also, arguments=self.uid)


def install_command(extra: str | None, also: Sequence[str] = (), *, arguments: str = "...") -> str:
    """How to install what is missing; in a checkout of the workspace, which no index knows, how to run with it.

    Args:
        extra: of this package, or None.
        also: what else is needed. It may cap what the workspace's packages share, and gets an environment of its own.
        arguments: what the client is then run with.
    """
    package = shlex.quote("plugrl-env-client" if extra is None else f"plugrl-env-client[{extra}]")
    more = [shlex.quote(requirement) for requirement in also]
    if not _is_checkout():
        return " ".join(["pip install", package, *more])
    run = f"uv run --extra {extra}"
    if more:
        run = f"uv run --isolated --no-project --with-editable plugrl-protocol --with-editable {package}"
    return " ".join([run, *(f"--with {requirement}" for requirement in more), "plugrl-run-env-client", arguments])


def _is_checkout() -> bool:
    return (Path(__file__).parents[3] / "plugrl-protocol/pyproject.toml").is_file()


_HOME = "plugrl_env_client.envs."
BUILT_IN = {
    family.uid: family
    for family in (
        Family(
            "classic-v1",
            "classic control and toy text: CartPole, Pendulum, FrozenLake, ...",
            module="gym_families.classic_v1",
        ),
        Family("mujoco-v1", "MuJoCo: HalfCheetah, Hopper, Ant, ...", "mujoco", "mujoco", "gym_families.mujoco_v1"),
        Family("atari-v1", "Atari games, preprocessed as for DQN", "atari", "ale_py", "gym_families.atari_v1"),
        Family("pusht-v1", "pushing a T onto its goal", "pusht", "gym_pusht", "gym_families.pusht_v1"),
        Family(
            "robotics-v1",
            "Fetch, Shadow hand, mazes, Adroit, kitchen",
            "robotics",
            "gymnasium_robotics",
            "gym_families.robotics_v1",
            also=("mujoco<3.12",),
        ),
        Family(
            "metaworld-v1",
            "Meta-World's 50 manipulation tasks",
            needs="metaworld",
            module="simulators.metaworld_v1",
            also=("metaworld>=3.0", "packaging"),  # which it imports through Gymnasium and does not name
        ),
        Family(
            "libero-v1",
            "LIBERO's tasks in language",
            needs="libero",
            module="simulators.libero_v1",
            also=("hf-libero",),
        ),
        Family(
            "robomimic-v1",
            "robomimic's tasks in robosuite: Lift, Can, Square, ...",
            needs="robosuite",
            module="simulators.robomimic_v1",
            also=("robosuite>=1.4", "mujoco<3.4"),
        ),
        Family("gym-v1", "any id registered with Gymnasium (--env.id)", module="gym_v1"),
        Family("dummy-v1", "does nothing, in episodes of 100 steps", module="dummy_v1"),
        Family("probe-v1", "the conformance probe of SPEC 8.1", module="probe_v1"),
    )
}

_factories: dict[str, Callable[..., BaseEnv]] = {}
_configs: dict[str, type[BaseEnvConfig]] = {}


def register_env(uid: str, *, override: bool = False) -> Callable[[_Factory], _Factory]:
    """Register a `BaseEnv` class, or a function that returns one, under a UID.

    It is called as `factory(config, num_envs)`.

    Args:
        uid: the name on the command line. That of a built-in family replaces the built-in.
        override: replace what other code has registered under this UID.

    Raises:
        KeyError: the UID is taken by other code.
    """

    def keep(factory: _Factory) -> _Factory:
        _claim(_factories, uid, factory, override)
        return factory

    return keep


def register_env_config(uid: str, *, override: bool = False) -> Callable[[_Config], _Config]:
    """Register the dataclass that holds a family's flags (`--env.*`).

    Args:
        uid: the name on the command line.
        override: replace what other code has registered under this UID.

    Raises:
        KeyError: the UID is taken by other code.
    """

    def keep(config: _Config) -> _Config:
        _claim(_configs, uid, config, override)
        return config

    return keep


def families() -> list[Family]:
    """Every family that can be named: built-in, registered, or announced by an entry point. Imports none of them."""
    listed = dict(BUILT_IN)
    for name in _entry_points():
        listed.setdefault(name, Family(name, f"from the entry point {_entry_points()[name].value}"))
    for uid, factory in _factories.items():
        if uid not in BUILT_IN or not _is_built_in(factory):
            summary = (factory.__doc__ or "").strip().partition("\n")[0]
            listed[uid] = Family(uid, summary or f"from {factory.__module__}")
    return list(listed.values())


def env_config(uid: str) -> type[BaseEnvConfig]:
    """The class that holds the flags of a family.

    Raises:
        EnvError: no such family, or it has not registered everything; the text helps.
    """
    _load(uid)
    if uid in _configs:
        return _configs[uid]
    if uid in _factories:
        raise EnvError(f"the env {uid} is registered without its configuration: decorate it with register_env_config")
    raise EnvError(_no_such(uid))


def make_env(uid: str, config: BaseEnvConfig, num_envs: int) -> BaseEnv:
    """Build n environments of a family.

    Raises:
        EnvError: the family is unknown, needs an extra, or refuses its configuration.
    """
    _load(uid)
    family = BUILT_IN.get(uid)
    if family is not None and not family.installed and _is_built_in(_factories.get(uid)):
        missing = f"the extra {family.extra}" if family.extra else f"the package {family.needs}"
        raise EnvError(f"{uid} needs {missing}: {family.install_command}")
    if uid not in _factories:
        if uid in _configs:
            raise EnvError(f"only the configuration of {uid} is registered: import the module that registers the env")
        raise EnvError(_no_such(uid))
    return _factories[uid](config, num_envs)


def import_modules(names: tuple[str, ...]) -> None:
    """Import the modules of `--import`, which register what they hold; the current folder is searched too.

    Raises:
        EnvError: a module that cannot be imported.
    """
    for name in names:
        if not name or name.startswith("."):
            raise EnvError(f"--import {name!r}: expected a module's full name, as my_pkg.my_env")
        try:
            import_named(name)
        except Exception as err:  # whatever the user's module does while it is imported
            raise EnvError(f"--import {name}: {_reason(err)}") from err


def import_named(name: str) -> ModuleType:
    """Import a module that a flag names, from the current folder too: an installed command does not look there."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _reason(err: Exception) -> str:
    """One line: what has happened, and where."""
    said = " ".join(str(err.args[0] if isinstance(err, KeyError) and err.args else err).split())
    if isinstance(err, ImportError):
        return said
    where = ""
    if not isinstance(err, SyntaxError):  # which says so itself
        at = [frame for frame in traceback.extract_tb(err.__traceback__) if frame.filename != __file__][-1]
        where = f" ({Path(at.filename).name}, line {at.lineno})"
    return f"{type(err).__name__}: {said}{where}"


def _claim(table: dict[str, Any], uid: str, what: Any, override: bool) -> None:
    if _is_built_in(what):
        table.setdefault(uid, what)  # a user's family keeps the name when ours is imported after it
        return
    holder = table.get(uid)
    if holder is not None and not _is_built_in(holder) and not override:
        raise KeyError(f"{uid} is already registered by {holder.__module__}; pass override=True to replace it")
    table[uid] = what
    if uid in BUILT_IN and table is _factories:
        _logger.info("%s is now the one of %s, not the built-in", uid, what.__module__)


def _is_built_in(what: Any) -> bool:
    return what is not None and str(what.__module__).startswith(_HOME)


def _load(uid: str) -> None:
    """Import what registers `uid`, unless other code has already done so."""
    if uid in _factories and uid in _configs:
        return
    if uid in BUILT_IN:
        importlib.import_module(_HOME + str(BUILT_IN[uid].module))
    elif uid in _entry_points():
        _load_entry_point(uid)


def _load_entry_point(name: str) -> None:
    try:
        _entry_points()[name].load()
    except Exception as err:
        raise EnvError(f"the entry point {name} ({_entry_points()[name].value}) cannot be loaded: {err}") from err


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _no_such(uid: str) -> str:
    names = [family.uid for family in families()]
    loose = {_loosely(name): name for name in names}
    near = difflib.get_close_matches(_loosely(uid), list(loose), n=1, cutoff=0.5)
    advice = f"did you mean {loose[near[0]]}? " if near else ""
    return f"there is no env {uid}: {advice}known: {', '.join(names)}"


def _loosely(name: str) -> str:
    return name.lower().replace("_", "-").removesuffix("-v1")
