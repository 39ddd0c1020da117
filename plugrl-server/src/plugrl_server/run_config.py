"""The flags of `plugrl-run-server` that belong to the run itself, checked before anything starts.

The flags of the policy (`--policy.*`) and of the algorithm (`--algo.*`) are fields of the config classes registered
for them; `cli.py` puts the three together. Nothing here imports torch, so that `--help` stays quick.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

API_KEY_VARIABLE = "PLUGRL_API_KEY"
"""Environment variable read when `--api-key` is not given, so that the key stays out of the process list."""

KEPT_ON_RESUME = (
    "keep_checkpoints",
    "mini_infer_batch_size",
    "infer_wait_ms",
    "feedback_wait_timeout",
    "torch_threads",
    "metadata",
    "max_frame_mib",
    "log_level",
    "show_progress_bar",
    "show_metric_table",
    "deterministic",
    "spin_us",
    "track",
)
"""Flags of the run that --resume brings back; where it listens, whom it lets in and what it starts are said anew."""

LogLevel = Literal["debug", "info", "warning", "error"]


class UsageError(Exception):
    """The command line asks for something that cannot be; the text names the flag and what was expected."""


@dataclasses.dataclass(frozen=True)
class TrackConfig:
    """Experiment trackers beside TensorBoard and metrics.jsonl, which are always written."""

    wandb: bool = False
    """Report to Weights & Biases (extra: wandb)."""
    swanlab: bool = False
    """Report to SwanLab (extra: swanlab)."""
    project: str = "plugrl"
    """Project that wandb and swanlab file the run under."""
    entity: str | None = None
    """Team or user (wandb: entity, swanlab: workspace); default: the account's own."""
    offline: bool = False
    """Record for wandb and swanlab on this disk only, to be uploaded later."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Flags of the run: where it listens, where it writes, how it serves."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 or :: for every interface."""
    port: int = 8000
    """Port to listen on; 0 lets the system choose one, which is printed."""
    exp_name: str | None = None
    """Name of the run's folder; default: the time it started."""
    prefix: str | None = None
    """Put before the name, joined by a hyphen."""
    suffix: str | None = None
    """Put after the name, joined by a hyphen."""
    seed: int | None = None
    """Seed of Python, NumPy and Torch; default: drawn at random and recorded."""
    overwrite: bool = False
    """Replace an earlier run of the same name."""
    resume: bool = False
    """Go on from the latest checkpoint of the run named by --exp-name; flags left out keep that run's values."""
    checkpoint_base_dir: Path = Path("checkpoints")
    """Folder that holds <algo>/<policy>/<name> of every run."""
    keep_checkpoints: int | None = None
    """Keep only this many of the latest checkpoints; default: all."""
    mini_infer_batch_size: int = 1
    """Least number of envs in an inference batch, as far as --infer-wait-ms allows."""
    infer_wait_ms: float = 5.0
    """Longest time in ms that a request waits for others to fill --mini-infer-batch-size."""
    feedback_wait_timeout: float = 60.0
    """Seconds a client may take from an action to its feedback; does not run during a learn step."""
    torch_threads: int | None = None
    """Torch's CPU threads; default: 1 for networks under a million parameters, else Torch's own choice."""
    learners: int = 1
    """Processes that share each learn step, started by torchrun; the server is the first of them."""
    metadata: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE added to the metadata every client receives; repeatable."""
    api_key: str | None = None
    """Key that clients must send; better given as PLUGRL_API_KEY, which other users of the machine cannot see."""
    max_frame_mib: float = 256.0
    """Largest WebSocket frame in MiB that is accepted."""
    client: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Shell command of an env client, started when the server listens and ended with it; {host} and {port} are
    replaced; repeatable."""
    log_level: LogLevel = "info"
    """Least severe messages that are shown."""
    show_progress_bar: bool = True
    """Live progress on a terminal; plain lines otherwise."""
    show_metric_table: bool = False
    """Print every metric after each learn step."""
    import_: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="import")] = ()
    """MODULE to import first, for policies and algorithms of your own; repeatable."""
    deterministic: int | None = None
    """Wait for this many connections, then serve them in rounds, in the order of their client numbers."""
    spin_us: float | Literal["auto"] = "auto"
    """Time in us to poll the sockets before sleeping; auto: up to 500 while that pays and a core is to spare."""
    track: TrackConfig = dataclasses.field(default_factory=TrackConfig)

    def checked(self) -> RunConfig:
        """This configuration with the API key taken from the environment where no flag gives it.

        Raises:
            UsageError: A value is out of range; the message names the flag and what was expected.
        """
        config = self
        if self.api_key is None:
            config = dataclasses.replace(self, api_key=os.environ.get(API_KEY_VARIABLE) or None)
        for problem in _problems(config):
            raise UsageError(problem)
        return config

    @property
    def metadata_items(self) -> dict[str, str]:
        """`--metadata` as a map; a key given twice keeps its last value."""
        return dict(_key_value(item) for item in self.metadata)

    def kept(self) -> dict[str, object]:
        """What `--resume` brings back, as JSON values."""
        return {name: value for name, value in self.public().items() if name in KEPT_ON_RESUME}

    def said_anew(self) -> dict[str, list[str]]:
        """The flags that a command which goes on with this run has to give again, the API key left out."""
        again = {"import": list(self.import_), "client": redacted(self.client, self.api_key)}
        for name in ("host", "port", "learners"):
            value = getattr(self, name)
            again[name] = [] if value == getattr(RunConfig, name) else [str(value)]
        return again

    def public(self) -> dict[str, object]:
        """The flags as JSON values, with the API key left out."""
        values = dataclasses.asdict(self)
        values["checkpoint_base_dir"] = str(self.checkpoint_base_dir)
        values["import"] = list(values.pop("import_"))
        values["client"] = redacted(self.client, self.api_key)
        values["api_key"] = None if self.api_key is None else "***"
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def redacted(command: Sequence[str], api_key: str | None) -> list[str]:
    """`command` with every occurrence of the API key replaced by `***`."""
    return [word.replace(api_key, "***") for word in command] if api_key else list(command)


def _problems(config: RunConfig) -> list[str]:
    return [
        *_address_problems(config),
        *_folder_problems(config),
        *_number_problems(config),
        *_word_problems(config),
    ]


def _address_problems(config: RunConfig) -> list[str]:
    problems = []
    if not config.host.strip():
        problems.append("--host: expected an address such as 127.0.0.1, got an empty text")
    if not 0 <= config.port <= 65_535:
        problems.append(f"--port: expected 0 to 65535, got {config.port}")
    return problems


def _folder_problems(config: RunConfig) -> list[str]:
    problems = []
    for flag, name in (("--exp-name", config.exp_name), ("--prefix", config.prefix), ("--suffix", config.suffix)):
        if name is None:
            continue
        if not name.strip():
            problems.append(f"{flag}: expected a name, got an empty text")
        elif name in (".", "..") or any(mark in name for mark in "/\\\0"):
            problems.append(f"{flag}: expected a plain folder name without / or \\, got {name!r}")
    if config.overwrite and config.resume:
        problems.append("--overwrite and --resume exclude each other: the one deletes what the other continues")
    return problems


def _number_problems(config: RunConfig) -> list[str]:
    counts = {
        "--keep-checkpoints": config.keep_checkpoints,
        "--mini-infer-batch-size": config.mini_infer_batch_size,
        "--torch-threads": config.torch_threads,
        "--learners": config.learners,
        "--deterministic": config.deterministic,
    }
    problems = [f"{flag}: expected at least 1, got {n}" for flag, n in counts.items() if n is not None and n < 1]
    amounts = {"--infer-wait-ms": config.infer_wait_ms}
    if config.spin_us != "auto":
        amounts["--spin-us"] = config.spin_us
    problems += [
        f"{flag}: expected a finite number, 0 or more, got {x}"
        for flag, x in amounts.items()
        if not (math.isfinite(x) and x >= 0)
    ]
    positives = {"--feedback-wait-timeout": config.feedback_wait_timeout, "--max-frame-mib": config.max_frame_mib}
    problems += [
        f"{flag}: expected a finite number above 0, got {x}"
        for flag, x in positives.items()
        if not (math.isfinite(x) and x > 0)
    ]
    if config.seed is not None and not 0 <= config.seed < 2**32:
        problems.append(f"--seed: expected 0 to {2**32 - 1}, got {config.seed}")
    return problems


def _word_problems(config: RunConfig) -> list[str]:
    problems = [f"--metadata: expected KEY=VALUE, got {item!r}" for item in config.metadata if not _key_value(item)[0]]
    problems += ["--client: expected a command, got an empty text" for cmd in config.client if not cmd.strip()]
    if config.api_key is not None and not (config.api_key.isascii() and config.api_key.isprintable()):
        problems.append("--api-key: expected printable ASCII, so that it fits an HTTP header")
    elif config.api_key is not None and not config.api_key.strip():
        problems.append("--api-key: expected a key, got an empty text")
    if not config.track.project.strip():
        problems.append("--track.project: expected a name, got an empty text")
    return problems


def _key_value(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    return (key.strip() if equals else "", value)
