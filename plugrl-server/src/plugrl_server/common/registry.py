"""One registry of uids: class, configuration variants, lazily listed built-ins and entry points.

Policies and algorithms each own one `Registry`. A uid binds a class to its configuration variants. Built-ins are rows
of a table (`BuiltIn`) that names modules: listing imports only the configuration modules, which never import torch, and
making imports the module of the class. Registering is done by decorators, so importing a module is all a plug-in needs.
"""

import dataclasses
import difflib
import importlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Iterable
from typing import Any

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A built-in as the table lists it, before anything of it is imported.

    Attributes:
        uid: The name on the command line.
        config_module: Registers the configuration variants when imported; must not import torch.
        class_module: Registers the class when imported.
        needs: Import names that an extra installs.
        extra: The extra of the `plugrl-server` distribution that installs them; None where they are packages of these
            names that are to be installed by themselves, because they cap what others need.
        requirement: What installs them then, where it is not their names.
    """

    uid: str
    config_module: str
    class_module: str
    needs: tuple[str, ...] = ()
    extra: str | None = None
    requirement: str | None = None

    @property
    def missing(self) -> str | None:
        """What has to be installed to use it, as a requirement; None when all is there."""
        if all(importlib.util.find_spec(name) is not None for name in self.needs):
            return None
        return self.requirement or " ".join(self.needs) if self.extra is None else f"plugrl-server[{self.extra}]"

    @property
    def install_command(self) -> str | None:
        """The command that installs what is missing here, or None when nothing is."""
        if (missing := self.missing) is None:
            return None
        return "uv pip install " + (f"'{missing}'" if "[" in missing else missing)


@dataclasses.dataclass
class Entry:
    """What user code and built-in modules registered under one uid; either side may be empty."""

    user_class: type | None = None
    builtin_class: type | None = None
    user_variants: dict[str, type] = dataclasses.field(default_factory=dict)
    builtin_variants: dict[str, type] = dataclasses.field(default_factory=dict)

    @property
    def replaced(self) -> bool:
        """Whether a built-in of this uid is out of play: user code brought a class, or a configuration of its own.

        A user's configuration that derives from the built-in's is one more variant of the built-in instead.
        """
        known = tuple(self.builtin_variants.values())
        return self.user_class is not None or not all(issubclass(cls, known) for cls in self.user_variants.values())

    @property
    def registered_class(self) -> type | None:
        """The class that `make` builds: the user's, else the built-in one."""
        return self.user_class if self.replaced else self.builtin_class

    @property
    def variants(self) -> dict[str, type]:
        """Variant name -> configuration class; a user's class without configurations takes the built-in's."""
        if self.replaced and self.user_variants:
            return dict(self.user_variants)
        return {**self.builtin_variants, **self.user_variants}


class Registry:
    """Registrations of one kind.

    Args:
        kind: "Policy" or "Algorithm", as error texts say it.
        builtins: The table of built-ins.
        entry_point_group: The group whose entry points name modules that register when imported.
    """

    def __init__(self, kind: str, builtins: Iterable[BuiltIn], entry_point_group: str) -> None:
        self.kind = kind
        self.builtins = {builtin.uid: builtin for builtin in builtins}
        self.entry_point_group = entry_point_group
        self.broken_entry_points: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}
        self._entry_points_loaded = False

    # Registering -------------------------------------------------------------------------------------------------

    def register_class(self, uid: str, *, override: bool = False) -> Callable[[type], type]:
        """Return the decorator that registers a class under `uid`.

        Raises:
            KeyError: From the decorator, when user code registered another class under `uid` and `override` is false.
        """

        def decorate(cls: type) -> type:
            entry = self._entry(uid)
            if self._is_builtin(uid, cls):
                entry.builtin_class = cls
                return cls
            self._refuse_second(f"{self.kind} {uid}", entry.user_class, cls, override)
            entry.user_class = cls
            return cls

        return decorate

    def register_config(self, uid: str, variant: str = "default", *, override: bool = False) -> Callable[[type], type]:
        """Return the decorator that registers a configuration dataclass as a variant of `uid`.

        Raises:
            KeyError: From the decorator, when user code registered this variant already and `override` is false.
            TypeError: From the decorator, when the class is not a dataclass.
        """

        def decorate(cls: type) -> type:
            if not dataclasses.is_dataclass(cls):
                raise TypeError(f"{_name(cls)} must be a dataclass: put @dataclasses.dataclass below the registration.")
            entry = self._entry(uid)
            if self._is_builtin(uid, cls):
                entry.builtin_variants[variant] = cls
                return cls
            self._refuse_second(f"{self.kind} config {uid} {variant}", entry.user_variants.get(variant), cls, override)
            entry.user_variants[variant] = cls
            return cls

        return decorate

    def _refuse_second(self, what: str, old: type | None, new: type, override: bool) -> None:
        if old is None or override or _name(old) == _name(new):  # the same name again is a module reload
            return
        raise KeyError(
            f"{what} is registered twice: by {_name(old)} and by {_name(new)}. "
            f"Rename one, or pass override=True to replace the first."
        )

    def _entry(self, uid: str) -> Entry:
        return self._entries.setdefault(uid, Entry())

    def _is_builtin(self, uid: str, cls: type) -> bool:
        builtin = self.builtins.get(uid)
        return builtin is not None and cls.__module__ in (builtin.config_module, builtin.class_module)

    # Looking up --------------------------------------------------------------------------------------------------

    def variants(self) -> dict[str, dict[str, type]]:
        """Return uid -> variant -> configuration class, sorted; imports configuration modules only."""
        self._load_entry_points()
        for builtin in self.builtins.values():
            self._load_builtin_config(builtin)
        listed = {uid: entry.variants for uid, entry in self._entries.items() if entry.variants}
        return {uid: dict(sorted(listed[uid].items(), key=_default_first)) for uid in sorted(listed)}

    def missing_extras(self) -> dict[str, str]:
        """Return uid -> install command of the built-ins that this installation cannot run."""
        commands = {uid: builtin.install_command for uid, builtin in self.builtins.items() if not self._replaced(uid)}
        return {uid: command for uid, command in commands.items() if command is not None}

    def get_class(self, uid: str) -> type:
        """Return the class registered under `uid`, importing the built-in's module when needed.

        Raises:
            KeyError: `'<Kind> <uid> is not registered.'`; its notes (PEP 678) say what to do about it.
            ImportError: The built-in needs what is not installed; the text ends with the install command.
        """
        self._load_entry_points()
        builtin = self.builtins.get(uid)
        if builtin is not None:
            self._load_builtin_config(builtin)
        if builtin is not None and not self._replaced(uid):
            if (missing := builtin.missing) is not None:
                raise ImportError(
                    f"{self.kind} {uid} needs {missing}, which is not installed: {builtin.install_command}"
                )
            importlib.import_module(builtin.class_module)
        found = self._entries[uid].registered_class if uid in self._entries else None
        if found is None:
            error = KeyError(f"{self.kind} {uid} is not registered.")
            error.add_note(self.hint(uid))
            raise error
        return found

    def replacement(self, uid: str) -> str | None:
        """Return what to say of a user's class that has a built-in's uid, None where there is no such class."""
        user_class = self._entries[uid].user_class if uid in self._entries and uid in self.builtins else None
        return None if user_class is None else f"{self.kind} {uid}: {_name(user_class)} replaces the built-in."

    def hint(self, uid: str) -> str:
        """Return what to do about a uid that has no class: the missing import, or the nearest names."""
        if uid in self.broken_entry_points:
            return f"The entry point {uid} could not be loaded: {self.broken_entry_points[uid]}"
        if variants := self._entries[uid].variants if uid in self._entries else {}:
            config = next(iter(variants.values()))
            return (
                f"Its configuration {_name(config)} is registered, but the module of its class was never imported. "
                f"Import that module as well (beside `import {config.__module__}`, or with --import MODULE)."
            )
        if close := self.suggest(uid):
            return f"Did you mean {' or '.join(close)}?"
        return f"Registered: {', '.join(self.variants())}. Import your own module with --import MODULE."

    def suggest(self, uid: str) -> tuple[str, ...]:
        """Return up to three registered uids whose names are close to `uid` (case, `_` and `-` do not count)."""
        wanted, names = _loose(uid), {_loose(name): name for name in self.variants()}
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.75)
        close = close or [name for name in names if wanted in name or name in wanted]
        close = close or difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
        return tuple(names[name] for name in close[:3])

    def _replaced(self, uid: str) -> bool:
        return uid in self._entries and self._entries[uid].replaced

    def _load_builtin_config(self, builtin: BuiltIn) -> None:
        if not self._entry(builtin.uid).builtin_variants:
            importlib.import_module(builtin.config_module)

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True  # set first: a plug-in may look something up while it is imported
        for entry_point in importlib.metadata.entry_points(group=self.entry_point_group):
            try:
                entry_point.load()
            except Exception as error:  # a plug-in's fault must not stop a run that does not use it
                self.broken_entry_points[entry_point.name] = f"{type(error).__name__}: {error}"
                logger.warning(
                    "Entry point %s of %s (%s) could not be loaded: %s: %s",
                    entry_point.name,
                    self.entry_point_group,
                    entry_point.value,
                    type(error).__name__,
                    error,
                )


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _loose(name: str) -> str:
    return name.lower().replace("_", "-")


def _default_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0] != "default", item[0]
