"""The four names of the command line: `<policy> <variant> <algo> <variant>`, and tables of what can come next.

The names are peeled off by hand, wherever the run's own flags stand between them, because the flags of the policy
and of the algorithm are only known once the names are.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.common.registry import Registry
from plugrl_server.policy.registration import POLICIES
from plugrl_server.run_config import RunConfig, TrackConfig, UsageError

PROGRAM = "plugrl-run-server"
NAMES = ("<policy>", "<variant>", "<algo>", "<variant>")
_HELP = ("-h", "--help")
_OWN_MODULE = "\none of your own is found once its module is imported: --import MODULE"


class Command(NamedTuple):
    """The whole command line.

    Attributes:
        program: What stands before the first word of the program's own.
        words: These words.
    """

    program: list[str]
    words: list[str]


def program(argv: Sequence[str] | None) -> list[str]:
    """Return how this program was started: by its name, or as one's own script or code that calls `main`.

    Args:
        argv: What `main` was handed in place of the process's own words.
    """
    started = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    if argv is not None or Path(started[-1]).stem == PROGRAM:
        return [PROGRAM]
    return started


@dataclasses.dataclass(frozen=True)
class Words:
    """A command line taken apart.

    Attributes:
        names: The leading names, at most four.
        flags: Every other word, in order.
    """

    names: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def wants_help(self) -> bool:
        """Whether help was asked for."""
        return any(flag in _HELP for flag in self.flags)


def split(argv: Sequence[str]) -> Words:
    """Takes the names out of a command line.

    Raises:
        UsageError: A flag stands before the last name that cannot be told apart from a name there.
    """
    names: list[str] = []
    flags: list[str] = []
    rest = list(argv)
    while rest and len(names) < len(NAMES):
        word = rest.pop(0)
        if not word.startswith("-"):
            names.append(word)
            continue
        flags.append(word)
        if word not in _HELP and "=" not in word and _takes_value(word) and rest:
            flags.append(rest.pop(0))
    return Words(tuple(names), (*flags, *rest))


def import_modules(flags: Sequence[str]) -> None:
    """Imports what every `--import MODULE` names; the current folder is searched too.

    Raises:
        UsageError: A module cannot be imported; the text says why.
    """
    modules = [flag.partition("=")[2] for flag in flags if flag.startswith("--import=")]
    modules += [value for flag, value in itertools.pairwise(flags) if flag == "--import"]
    if modules and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the module's own code raises is the user's to mend
            raise UsageError(f"--import {module}: {type(error).__name__}: {_text(error)}") from None


def check_names(names: Sequence[str]) -> None:
    """Checks the names so far.

    Raises:
        UsageError: One is not registered; the text suggests close ones and lists what there is.
    """
    for position, name in enumerate(names):
        choices = _choices(names[:position])
        if name not in choices:
            kind = f"variant of {names[position - 1]}" if position % 2 else _registry(position).kind.lower()
            raise UsageError(f"no {kind} is named {name!r}{_advice(name, names[:position], choices)}")


def config_classes(names: Sequence[str]) -> tuple[type, type]:
    """The configuration classes of policy and algorithm for four checked names."""
    return POLICIES.variants()[names[0]][names[1]], ALGORITHMS.variants()[names[2]][names[3]]


def show_choices(names: Sequence[str], console: Console) -> None:
    """Prints how to go on after the names so far, and what can come next."""
    missing = " ".join(NAMES[len(names) :])
    console.print(
        f"usage: {' '.join([PROGRAM, *names, missing])} [flags]", markup=False, highlight=False, soft_wrap=True
    )
    if len(names) % 2 == 0:
        console.print(_uid_table(_registry(len(names))))
    else:
        console.print(_variant_table(_choices(names), f"variants of {names[-1]}"))
    flags = "after all four names, --help lists the flags; modules of your own are found with --import MODULE"
    console.print(flags, markup=False, highlight=False, soft_wrap=True)


def _takes_value(flag: str) -> bool:
    """Whether a flag that stands before the last name is followed by a value.

    Only the run's own flags are known there.
    """
    name = flag.removeprefix("--").replace("_", "-")
    for prefix in ("policy.", "algo."):
        if name.startswith(prefix):
            raise UsageError(
                f"{flag} stands before the names are complete; put the flags of the policy and the algorithm after "
                f"all four: {PROGRAM} {' '.join(NAMES)} {flag} ..."
            )
    known = _run_flags()
    if name in known:
        return known[name]
    hint = difflib.get_close_matches(name, known, n=1)
    raise UsageError(f"{flag} is no flag of the run" + (f"; did you mean --{hint[0]}?" if hint else ""))


def _run_flags() -> dict[str, bool]:
    """Every flag of the run, without its dashes, and whether a value follows it."""
    flags: dict[str, bool] = {}
    for prefix, config in (("", RunConfig), ("track.", TrackConfig)):
        for field in dataclasses.fields(config):
            name = field.name.rstrip("_").replace("_", "-")
            is_switch = isinstance(field.default, bool)
            flags[prefix + name] = not is_switch
            if is_switch:
                flags[f"{prefix}no-{name}"] = False
    return flags


def _registry(position: int) -> Registry:
    return POLICIES if position < 2 else ALGORITHMS


def _choices(names: Sequence[str]) -> Mapping[str, object]:
    variants = _registry(len(names)).variants()
    return variants[names[-1]] if len(names) % 2 else variants


def _advice(name: str, before: Sequence[str], choices: Mapping[str, object]) -> str:
    registry = _registry(len(before))
    is_variant = bool(len(before) % 2)
    close = difflib.get_close_matches(name, choices) if is_variant else registry.suggest(name)
    question = f"; did you mean {close[0]}?" if close else ""
    return f"{question}\nthere are: {', '.join(choices)}" + ("" if close or is_variant else _OWN_MODULE)


def _uid_table(registry: Registry) -> Table:
    table = Table("name", "variants", "what it is", title=f"{_plural(registry)} to choose from", title_justify="left")
    missing = registry.missing_extras()
    for uid, variants in registry.variants().items():
        summary = _summary(next(iter(variants.values())))
        note = f"not installed: {missing[uid]}" if uid in missing else ""
        _add_row(table, uid, ", ".join(variants), "\n".join(part for part in (summary, note) if part))
    return table


def _variant_table(variants: Mapping[str, object], title: str) -> Table:
    table = Table("variant", "differs from the default in", title=title, title_justify="left")
    base = _values(variants.get("default"))
    for name, config in variants.items():
        changes = (f"{key}={value!r}" for key, value in _values(config).items() if base.get(key, value) != value)
        _add_row(table, name, "" if name == "default" else ", ".join(changes))
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*map(Text, cells))  # as plain text: brackets, as in plugrl-server[extra], are no markup


def _values(config: object) -> dict[str, object]:
    """A configuration class's values as it comes; none where it needs arguments."""
    try:
        made = config() if isinstance(config, type) else None
        return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}


def _summary(config: type) -> str:
    """First line of the class's own docstring; the signature that dataclasses put in its place says nothing."""
    text = (config.__dict__.get("__doc__") or "").strip()
    return "" if text.startswith(f"{config.__name__}(") else text.partition("\n")[0]


def _plural(registry: Registry) -> str:
    return {"Policy": "policies", "Algorithm": "algorithms"}[registry.kind]


def _text(error: Exception) -> str:
    """The error's text; a KeyError's without the quotes around it."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
