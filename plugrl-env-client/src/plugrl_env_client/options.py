"""The flags of `plugrl-run-env-client`, their defaults and their checks."""

import dataclasses
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from plugrl_env_client.envs.base_env import BaseEnvConfig
from plugrl_env_client.link.address import MAX_PORT, Address, AddressError, parse_address
from plugrl_env_client.recording.recorder_options import RecorderOptions

HOST_VARIABLE = "PLUGRL_SERVER_HOST"
PORT_VARIABLE = "PLUGRL_SERVER_PORT"
KEY_VARIABLE = "PLUGRL_API_KEY"
OFFSET_VARIABLE = "PLUGRL_CLIENT_OFFSET"
RUNS_FOLDER = "plugrl-client"
MAX_SPIN_US = 1_000_000
HANG_SECONDS = 120.0
MIN_FPS, MAX_FPS = 0.1, 1000.0
MAX_ENVS = 65_536  # SPEC 4.4: env indices are 0..65,535


class OptionError(ValueError):
    """A flag or an environment variable that cannot be used: the text names it and says what was expected."""


def _default_host() -> str:
    return os.environ.get(HOST_VARIABLE) or "127.0.0.1"


def _default_port() -> int:
    port = _whole(PORT_VARIABLE, os.environ.get(PORT_VARIABLE) or "8000")
    if not 1 <= port <= MAX_PORT:
        raise OptionError(f"{PORT_VARIABLE}={port} in the environment: expected 1 to {MAX_PORT}")
    return port


@dataclasses.dataclass
class RunnerOptions:
    """How episodes are run."""

    replan_steps: int | None = None
    """Steps of each action chunk to run before asking for the next one. None: all of them."""

    max_episode_steps: int | None = None
    """Truncate episodes at this length, where the env itself does not end them earlier."""

    seed: int | None = None
    """Env i is seeded with seed + i, over all processes, but not with --env.vectorization own. None: drawn, shown and
    recorded."""

    fps: float | None = None
    """Run in real time, so many steps a second, as robots do. None: as fast as it goes."""

    action_deadline: float | None = None
    """Seconds from an observation to the answer of the server after which --runner.on-stale sets in. Only with
    --runner.fps. None: three periods."""

    on_stale: Literal["hold", "zero", "stop"] | None = None
    """What a late answer is bridged with: hold repeats the last action, zero sends zeros, stop asks the env to hold and
    waits. Only with --runner.fps. None: stop."""


@dataclasses.dataclass
class ClientOptions:
    """Runs environments against a training server."""

    server_host: str = dataclasses.field(default_factory=_default_host)
    """Host name, IP address, or ws:// or wss:// URL. Default: PLUGRL_SERVER_HOST, or 127.0.0.1."""

    server_port: int = dataclasses.field(default_factory=_default_port)
    """Default: PLUGRL_SERVER_PORT, or 8000."""

    num_envs: int = 1
    """Environments, over all processes."""

    num_episodes: int | None = None
    """End after so many finished episodes. None: run until the server stops."""

    num_steps: int | None = None
    """End after so many env steps, all envs counted. None: run until the server stops."""

    num_procs: int = 1
    """Processes to share the environments among."""

    num_groups: int = 1
    """Groups that each process divides its environments into. Each has its own connection and its own turn, so that
    some step while others wait."""

    restart_failed: int = 0
    """Start a process that failed again, at most so many times over the whole run."""

    hang_timeout: float | Literal["auto"] | None = "auto"
    """Seconds that a process may go without an env step while it is not waiting for the server, before it counts as
    failed; five times as many before its first step. A recorder that writes nothing for as long has failed, too.
    Where a number is given, a single process is watched, too. auto: 120. None: as long as they like."""

    exp_name: str | None = None
    """Keep config.json, summary.json and logs in ./plugrl-client/EXP_NAME."""

    reuse_feedback_obs: bool = True
    """Send an observation once where the server offers reuse-feedback-obs; without the offer this changes nothing."""

    reconnect_on_server_stop: bool = False
    """When the server ends its run, wait for the next one instead of ending too."""

    connect_timeout: float = 30.0
    """Seconds for connecting, upgrading and receiving the metadata, together."""

    action_timeout: float | None = None
    """Seconds to wait for actions before reconnecting. None: as long as the server answers pings."""

    max_reconnects: int = 20
    """Attempts to reconnect, counted anew after every completed exchange."""

    max_frame_mib: int = 256
    """Largest frame to send or accept, in MiB."""

    spin_us: float | Literal["auto"] = "auto"
    """Microseconds to ask the socket again and again before sleeping; auto: up to 500 while that pays and a core is to
    spare."""

    api_key: str | None = None
    """Sent as `Authorization: Api-Key KEY`. Default: PLUGRL_API_KEY."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged to standard error."""

    quiet: bool = False
    """Print nothing but errors."""

    modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import", metavar="MODULE"), tyro.conf.UseAppendAction] = ()
    """Import a module first, which registers an env. May be given several times."""

    viewer: int | None = None
    """Serve a page on this port of 127.0.0.1 that shows what the envs see and do. Each of several processes serves its
    own: the first on this port, the second on the next one, and so on."""

    runner: RunnerOptions = dataclasses.field(default_factory=RunnerOptions)

    recorder: RecorderOptions = dataclasses.field(default_factory=RecorderOptions)

    @property
    def address(self) -> Address:
        """Where the server is.

        Raises:
            OptionError: not an address.
        """
        try:
            return parse_address(self.server_host, self.server_port)
        except AddressError as err:
            raise OptionError(str(err)) from None

    @property
    def hang_seconds(self) -> float | None:
        """--hang-timeout in seconds; None: for ever."""
        return HANG_SECONDS if self.hang_timeout == "auto" else self.hang_timeout

    @property
    def is_supervised(self) -> bool:
        """Whether the envs are run by processes that this one looks after."""
        return self.num_procs > 1 or self.restart_failed > 0 or self.hang_timeout not in ("auto", None)

    @property
    def folder(self) -> Path | None:
        """Where this run keeps its files; None without --exp-name."""
        return None if self.exp_name is None else Path(RUNS_FOLDER) / self.exp_name

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            OptionError: names the flag.
            RecordingError: names one of `--recorder.*`.
        """
        self.address  # noqa: B018 - a property that checks
        _at_least("--num-envs", self.num_envs, 1, most=MAX_ENVS)
        _at_least("--num-procs", self.num_procs, 1)
        _at_least("--num-groups", self.num_groups, 1)
        _at_least("--restart-failed", self.restart_failed, 0)
        _at_least("--max-reconnects", self.max_reconnects, 0)
        _at_least("--max-frame-mib", self.max_frame_mib, 1)
        _at_least("--runner.replan-steps", self.runner.replan_steps, 1)
        _at_least("--runner.max-episode-steps", self.runner.max_episode_steps, 1)
        _at_least("--runner.seed", self.runner.seed, 0)
        self._check_real_time()
        _at_least("--viewer", self.viewer, 1, most=65_536 - self.num_procs)
        self.recorder.check(self.num_envs, has_folder=self.exp_name is not None)
        _seconds("--connect-timeout", self.connect_timeout)
        _seconds("--action-timeout", self.action_timeout)
        _seconds("--hang-timeout", self.hang_seconds)
        if self.spin_us != "auto" and not 0 <= self.spin_us <= MAX_SPIN_US:
            raise OptionError(f"--spin-us {self.spin_us:g}: expected auto, or 0 to {MAX_SPIN_US:,}")
        if self.num_procs > self.num_envs:
            raise OptionError(f"--num-procs {self.num_procs}: more than --num-envs {self.num_envs}")
        groups = self.num_procs * self.num_groups
        if groups > self.num_envs:
            per_process = "" if self.num_procs == 1 else f" in each of --num-procs {self.num_procs}"
            raise OptionError(f"--num-groups {self.num_groups}{per_process}: more than --num-envs {self.num_envs}")
        if self.num_groups > 1 and self.spin_us not in ("auto", 0):
            raise OptionError(
                f"--spin-us {self.spin_us:g} with --num-groups {self.num_groups}: a group that spins keeps the others "
                "from stepping; expected auto or 0"
            )
        self._check_limits(groups)
        if self.exp_name is not None and (
            self.exp_name in ("", ".", "..") or any(char in self.exp_name for char in "/\\\0")
        ):
            raise OptionError(f"--exp-name {self.exp_name!r}: expected a plain folder name")

    def _check_limits(self, groups: int) -> None:
        """Every group has something to do."""
        among = [("--num-procs", self.num_procs), ("--num-groups", self.num_groups)]
        sharing = " times ".join(f"{flag} {count}" for flag, count in among if count > 1)
        for flag, value in (("--num-episodes", self.num_episodes), ("--num-steps", self.num_steps)):
            _at_least(flag, value, 1)
            if value is not None and value < groups:
                raise OptionError(f"{flag} {value}: expected at least {groups}, to be shared by {sharing}")

    def _check_real_time(self) -> None:
        runner = self.runner
        if runner.fps is None:
            for flag, value in (("action-deadline", runner.action_deadline), ("on-stale", runner.on_stale)):
                if value is not None:
                    raise OptionError(f"--runner.{flag} {value}: only with --runner.fps, which envs in real time need")
            return
        if not MIN_FPS <= runner.fps <= MAX_FPS:
            raise OptionError(f"--runner.fps {runner.fps:g}: expected {MIN_FPS:g} to {MAX_FPS:,g} steps a second")
        _seconds("--runner.action-deadline", runner.action_deadline)
        if runner.action_deadline is not None and runner.action_deadline * runner.fps < 1:
            raise OptionError(
                f"--runner.action-deadline {runner.action_deadline:g}: expected at least one period of --runner.fps "
                f"{runner.fps:g}, {1 / runner.fps:g} s"
            )
        if self.hang_seconds is not None and self.hang_seconds * runner.fps < 2:  # a step may be late by one more
            raise OptionError(
                f"--hang-timeout {self.hang_seconds:g}: expected at least two periods of --runner.fps {runner.fps:g}, "
                f"{2 / runner.fps:g} s"
            )
        if self.num_procs * self.num_groups < self.num_envs:
            raise OptionError(
                f"--runner.fps with --num-envs {self.num_envs}: envs of one group wait for each other's actions, which "
                f"robots cannot; expected --num-procs times --num-groups to be {self.num_envs}"
            )


@dataclasses.dataclass(frozen=True)
class Run:
    """What the user asked for.

    Attributes:
        uid: the env family.
        env_config: its own flags.
        options: all other flags.
        seed: of the run's first env.
        offset: this client's place among several (PLUGRL_CLIENT_OFFSET).
    """

    uid: str
    env_config: BaseEnvConfig
    options: ClientOptions
    seed: int
    offset: int


def options_type(env_config: type[BaseEnvConfig]) -> type[ClientOptions]:
    """`ClientOptions` with the flags of one env family under `--env.*`."""
    required = any(
        field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        for field in dataclasses.fields(env_config)
    )
    env: Any = dataclasses.field(kw_only=True) if required else dataclasses.field(default_factory=env_config)
    made = dataclasses.make_dataclass("ClientOptions", [("env", env_config, env)], bases=(ClientOptions,))
    made.__doc__ = ClientOptions.__doc__
    return made


def reading_none() -> ConstructorRegistry:
    """Rules (a context for `tyro.cli`) by which `none`, in any case, is None wherever a flag may be."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def none_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[None] | None:
        if info.type is not type(None):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="none",
            instance_from_str=_none,
            is_instance=lambda value: value is None,
            str_from_instance=lambda _: ["none"],
        )

    return registry


def _none(words: list[str]) -> None:
    if [word.lower() for word in words] != ["none"]:
        raise ValueError(f"{' '.join(words)} is not none")


def resolved_api_key(options: ClientOptions) -> str | None:
    """The key to send: the flag's, else the environment's, else none."""
    return options.api_key or os.environ.get(KEY_VARIABLE) or None


def client_offset() -> int:
    """PLUGRL_CLIENT_OFFSET: this client's place among several of one run, 0 when it is not set.

    Raises:
        OptionError: it is not a whole number, or negative.
    """
    offset = _whole(OFFSET_VARIABLE, os.environ.get(OFFSET_VARIABLE) or "0")
    _at_least(OFFSET_VARIABLE, offset, 0)
    return offset


def _whole(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"{variable}={text!r} in the environment: expected a whole number") from None


def _at_least(flag: str, value: int | None, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if value < least or (most is not None and value > most):
        upper = "" if most is None else f" and at most {most}"
        raise OptionError(f"{flag} {value}: expected at least {least}{upper}")


def _seconds(flag: str, value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise OptionError(f"{flag} {value:g}: expected a positive, finite number of seconds")
