"""`plugrl-run-env-client`: the command line."""

import dataclasses
import logging
import secrets
import sys
from collections.abc import Sequence

import tyro

from plugrl_env_client.client import Finished, run_alone
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, OptionError, Run, client_offset, options_type, reading_none
from plugrl_env_client.registration import env_config, families, import_modules
from plugrl_env_client.reporting.logs import set_up_logs
from plugrl_env_client.reporting.processes import ProcessStatus
from plugrl_env_client.reporting.progress import make_progress
from plugrl_env_client.reporting.records import RecordsError, summary_text, write_config, write_summary
from plugrl_env_client.reporting.tally import Snapshot
from plugrl_env_client.supervision.supervisor import Show, Supervised, supervise

PROG = "plugrl-run-env-client"
_logger = logging.getLogger("plugrl_env_client.cli")  # not __name__: this module may be the program itself

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments, without the program's name; None: those of this process.

    Returns:
        0 when the server ended the run, when what was asked for has been run, or after Ctrl-C; 1 after a failure, a
        refusal (1008, 1009, HTTP 401), too many attempts to reconnect, or where the run's folder cannot be written; 2
        for a mistake in the arguments.
    """
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except (OptionError, EnvError) as err:
        print(f"{PROG}: {err}", file=sys.stderr)  # noqa: T201 - this is the program's output
        return EXIT_USAGE
    except RecordsError as err:
        print(f"{PROG}: {err}", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    except KeyboardInterrupt:  # before anything has begun that handles signals itself
        print(f"{PROG}: interrupted", file=sys.stderr)  # noqa: T201
        return EXIT_OK


def _main(args: list[str]) -> int:
    args, modules = _take_imports(args)
    import_modules(modules)
    if not args or args[0] in ("-h", "--help"):
        print(_listing())  # noqa: T201
        return EXIT_OK if args else EXIT_USAGE
    uid, *flags = args
    if uid.startswith("-"):
        raise OptionError(f"expected an env before {uid}: {PROG} <env> [flags]; {PROG} --help lists them")
    with reading_none():
        parsed = tyro.cli(options_type(env_config(uid)), args=flags, prog=f"{PROG} {uid}")
    env = parsed.env  # type: ignore[attr-defined]
    # The parsed type was made for this env and cannot be pickled for child processes; its plain base can.
    fields = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(ClientOptions)}
    options = ClientOptions(**{**fields, "modules": modules})
    options.check()
    seed = secrets.randbelow(2**31) if options.runner.seed is None else options.runner.seed
    return _execute(Run(uid, env, options, seed, client_offset()))


def _execute(run: Run) -> int:
    options = run.options
    set_up_logs(options.log_level, quiet=options.quiet)
    if options.folder is not None:
        write_config(options.folder, run)
    _logger.info("%s: %d envs for %s, seed %d", run.uid, options.num_envs, options.address, run.seed)
    progress = make_progress(quiet=options.quiet)
    go = supervise if options.is_supervised else _alone
    try:
        with Interrupts().handling() as interrupts:
            ended = go(run, interrupts=interrupts, show=progress.show, interval=progress.interval)
    finally:
        progress.close()
    return _conclude(options, ended)


def _alone(run: Run, *, interrupts: Interrupts, show: Show, interval: float) -> Supervised:
    """Everything in this process, which nobody looks after."""

    def show_this(snapshot: Snapshot) -> None:
        show([ProcessStatus(0, 0, "running", snapshot)])

    finished = run_alone(run, interrupts=interrupts, show=show_this, interval=interval)
    return Supervised(finished, [ProcessStatus(0, 0, _outcome(finished), finished.snapshot)])


def _conclude(options: ClientOptions, ended: Supervised) -> int:
    """Say how it ended, on the screen and in the run's folder."""
    finished = ended.finished
    code = EXIT_OK if finished.error is None else EXIT_USAGE if finished.usage else EXIT_FAILED
    if not options.quiet and not finished.usage:
        print(summary_text(finished.outcome.value, finished.snapshot))  # noqa: T201
    if finished.error is not None:
        print(f"{PROG}: {finished.error}", file=sys.stderr)  # noqa: T201
    if options.folder is not None:
        write_summary(options.folder, _outcome(finished), code, ended.processes)
    return code


def _outcome(finished: Finished) -> str:
    return finished.outcome.value if finished.error is None else f"failed ({finished.error})"


def _take_imports(args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split `--import MODULE` off: those modules say which envs there are, so they come before everything else."""
    rest: list[str] = []
    modules: list[str] = []
    remaining = iter(args)
    for arg in remaining:
        if arg == "--import":
            module = next(remaining, None)
            if module is None:
                raise OptionError("--import: expected a module")
            modules.append(module)
        elif arg.startswith("--import="):
            modules.append(arg.removeprefix("--import="))
        else:
            rest.append(arg)
    return rest, tuple(modules)


def _listing() -> str:
    lines = [f"usage: {PROG} <env> [flags]", "", "Runs environments against a PlugRL training server.", "", "envs:"]
    listed = families()
    width = max(len(family.uid) for family in listed)
    for family in listed:
        missing = "" if family.installed else f"  [not installed: {family.install_command}]"
        lines.append(f"  {family.uid:<{width}}  {family.summary}{missing}")
    lines += ["", f"`{PROG} <env> --help` lists the flags of one. --import MODULE adds envs of your own."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
