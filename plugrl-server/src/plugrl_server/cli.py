"""`plugrl-run-server <policy> <variant> <algo> <variant> [flags]`.

Exit codes: 0 the run ended well (finished, stopped cleanly by a signal, or its clients finished); 1 it failed or could
not start; 2 the command line asks for something that cannot be; 130 it was interrupted before or without a clean stop.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, get_type_hints

import tyro
from rich.console import Console

from plugrl_server.assembly import ConfigError, Selection
from plugrl_server.common.none_word import reading_none
from plugrl_server.learners import torchrun
from plugrl_server.learners.team import check_can_share
from plugrl_server.record.config_json import SECRETS, RecordError, config_from_json
from plugrl_server.record.run_record import Part, RunRecord, read_record
from plugrl_server.run_config import KEPT_ON_RESUME, RunConfig, UsageError, redacted
from plugrl_server.selecting import (
    PROGRAM,
    Command,
    Words,
    check_names,
    config_classes,
    import_modules,
    program,
    show_choices,
    split,
)
from plugrl_server.training.run_folder import FolderError, RunFolder, earlier_runs, run_name
from plugrl_server.training.trackers import check_packages

USAGE, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line; modules imported before the call may have registered policies and algorithms.

    Args:
        argv: Words after the program's name; by default the process's own.

    Raises:
        SystemExit: Always where the exit code is not 0.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    code = _main(Command(program(argv), words), torchrun.this_command(argv))
    torchrun.end(code)
    if code:
        sys.exit(code)


def _main(command: Command, again: Sequence[str]) -> int:
    try:
        words = split(command.words)
        import_modules(words.flags)
        check_names(words.names)
        if len(words.names) < 4:
            show_choices(words.names, Console())
            return 0 if words.wants_help else USAGE
        return _run(words, command, again)
    except (UsageError, ConfigError, RecordError, FolderError) as error:
        sys.stderr.write(f"error: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _run(words: Words, command: Command, again: Sequence[str]) -> int:
    config, selection = parse(words)
    place = torchrun.place(config.learners)
    if place.rank > 0:
        return torchrun.learn(_device(selection))
    check_packages(config.track)
    folder = RunFolder(_parent(config, words) / run_name(config.exp_name, config.prefix, config.suffix, datetime.now()))
    folder.check_free(overwrite=config.overwrite, resume=config.resume)
    record = None
    if config.resume:
        record = read_record(folder.path)
        config, selection = parse(words, record)
    elif (trained := _trained_by(words, selection)) is not None:
        config, selection = parse(words, policy=trained.policy)
        selection = _with_space_of(trained, selection)
    _check_repeatable(config, selection)
    if config.learners > 1:
        check_can_share(selection, config.learners)
        if not place.started:
            return torchrun.launch(again, config.learners)
    # Imported here because it takes seconds, which neither --help nor a mistake on the command line should.
    from plugrl_server.run import start

    shown = redacted(command.words, config.api_key)
    for secret in SECRETS:
        shown = redacted(shown, getattr(selection.policy_config, secret, None))
    with torchrun.team(_device(selection)) if place.started else contextlib.nullcontext() as team:
        return start(config, selection, folder, Command(command.program, shown), record, team)


def _device(selection: Selection) -> str:
    return str(getattr(selection.policy_config, "device", "auto"))


def parse(words: Words, record: RunRecord | None = None, *, policy: Part | None = None) -> tuple[RunConfig, Selection]:
    """Reads the flags.

    Args:
        words: The command line with its four names, all registered.
        record: The run to go on with; its values are the defaults of the flags that it keeps.
        policy: A policy that another run trained; its values are the defaults of the policy's flags.

    Raises:
        UsageError: A value is out of range, or `record` is another policy's or algorithm's.
        SystemExit: From tyro, for `--help` and for flags that it does not know or cannot read.
    """
    of_policy, of_algorithm = config_classes(words.names)
    fields = [
        _field("policy", of_policy, policy or (record and record.policy)),
        _field("algo", of_algorithm, record and record.algorithm),
    ]
    if record is not None:
        fields += _kept(record)
    kind = dataclasses.make_dataclass("CommandLine", fields, bases=(RunConfig,), frozen=True, kw_only=True)
    if record is not None:
        _check_same_variants(words.names, record)
    prog = " ".join([PROGRAM, *words.names])
    try:
        with reading_none():
            values: Any = tyro.cli(kind, args=list(words.flags), prog=prog, description="Flags of the run.")
    except ValueError as error:  # a configuration that refuses a value when it is made
        raise UsageError(str(error)) from None
    own = {field.name: getattr(values, field.name) for field in dataclasses.fields(RunConfig)}
    own["metadata"] = tuple(dict.fromkeys(own["metadata"]))  # what a resumed run kept may have been said again
    config = RunConfig(**own).checked()
    _check_resume(config, words)
    policy_uid, policy_variant, algo_uid, algo_variant = words.names
    return config, Selection(policy_uid, policy_variant, values.policy, algo_uid, algo_variant, values.algo)


def _field(name: str, kind: type, part: Any) -> tuple[str, type, Any]:
    """The group of flags of a configuration class, with its values (or a recorded run's) as defaults."""
    try:
        default = kind()
    except TypeError:  # a class of the user's with fields that have no default: their flags are required
        return name, kind, dataclasses.field()
    except ValueError as error:
        raise UsageError(str(error)) from None
    if part is not None:
        default = config_from_json(default, part.config)
    return name, kind, dataclasses.field(default_factory=lambda: default)


def _kept(record: RunRecord) -> list[tuple[str, Any, Any]]:
    """The run's own flags that `--resume` brings back, with the recorded values as defaults."""
    recorded = {name: value for name, value in record.run.items() if name in KEPT_ON_RESUME}
    before, hints = config_from_json(RunConfig(), recorded), get_type_hints(RunConfig, include_extras=True)
    return [(name, hints[name], dataclasses.field(default_factory=partial(getattr, before, name))) for name in recorded]


def _trained_by(words: Words, selection: Selection) -> RunRecord | None:
    """The run whose trained policy the algorithm asks for, None where it asks for none."""
    ask = getattr(selection.algo_config, "policy_record", None)
    record: RunRecord | None = None if ask is None else ask()
    if record is not None and record.policy.uid != words.names[0]:
        raise UsageError(
            f"that run trained {record.policy.uid} {record.policy.variant}, not {words.names[0]}: the command has to "
            f"begin with {PROGRAM} {record.policy.uid} {record.policy.variant}"
        )
    return record


def _with_space_of(record: RunRecord, selection: Selection) -> Selection:
    """The selection for the actions that the policy was trained for."""
    if record.declaration is None or not hasattr(selection.policy_config, "action_space"):
        return selection
    policy_config = dataclasses.replace(selection.policy_config, action_space=record.declaration.action)
    return dataclasses.replace(selection, policy_config=policy_config)


def _check_same_variants(names: Sequence[str], record: RunRecord) -> None:
    recorded = (record.policy.uid, record.policy.variant, record.algorithm.uid, record.algorithm.variant)
    if tuple(names) != recorded:
        raise UsageError(f"--resume: that run is {' '.join(recorded)}, not {' '.join(names)}")


def _check_resume(config: RunConfig, words: Words) -> None:
    if config.resume and config.exp_name is None:
        runs = ", ".join(earlier_runs(_parent(config, words))[:5]) or "none"
        raise UsageError(f"--resume needs --exp-name; the latest runs there: {runs}")


def _check_repeatable(config: RunConfig, selection: Selection) -> None:
    if config.deterministic is not None and getattr(selection.algo_config, "concurrent", False):
        raise UsageError(
            f"--deterministic {config.deterministic}: with --algo.concurrent the age of the weights that act depends "
            f"on the clock, so the run would not repeat; use one or the other"
        )


def _parent(config: RunConfig, words: Words) -> Any:
    policy, _, algorithm, _ = words.names
    return config.checkpoint_base_dir / algorithm / policy


if __name__ == "__main__":
    main()
