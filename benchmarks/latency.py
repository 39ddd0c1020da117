"""What taking turns in groups is worth when the server is far away (`--num-groups`).

One client process, an env that needs 3 ms of processor time a step, the real server, and between them a proxy that
holds every byte for 25 ms, each way. A group's exchange takes one step of its envs and one round trip; while it is on
its way the other groups may step. With 16 envs, one group takes 16 * 3 + 50 = 98 ms for 16 steps, 16 groups take
max(16 * 3, 3 + 50) = 53 ms: 1.85 times the rate, and 16 times that of a single env.

    python benchmarks/latency.py --json results.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import floors
import measure
import numpy as np
import plugrl_peers
from payloads import SHAPES
from plugrl_env_client.client import run_alone
from plugrl_env_client.envs.base_env import BaseEnvConfig, Step
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, Run
from plugrl_env_client.registration import register_env, register_env_config
from plugrl_env_client.reporting.tally import Snapshot
from rich.table import Table

UID = "busy-v1"
LOOK_SECONDS = 0.05  # between two looks at the counts
WARM_UP_SECONDS = 1.0  # connecting through the proxy, and the first exchanges
TARGETS = {
    "overlap_16_groups": ("at_least", 1.5),
    "over_undelayed": ("at_most", 1.5),
    "speedup_16_groups": ("at_least", 8.0),
}


# --- the env and the way to the server -----------------------------------------------------------


@register_env_config(UID)
@dataclasses.dataclass
class BusyConfig(BaseEnvConfig):
    """How long a step takes."""

    cpu_ms: float = 3.0
    """Milliseconds of processor time that each env needs for a step."""


@register_env(UID)
class BusyEnv(DummyEnv):
    """Like `dummy-v1`, at work: it holds the interpreter for so much processor time, as an env in Python does."""

    def __init__(self, config: BusyConfig, num_envs: int) -> None:
        super().__init__(DummyConfig(), num_envs)
        self.env_id = UID
        self._nanoseconds = int(config.cpu_ms * 1e6)

    def step(self, actions: np.ndarray) -> Step:
        """Work for every env, one after the other."""
        until = time.thread_time_ns() + self.num_envs * self._nanoseconds
        while time.thread_time_ns() < until:
            pass
        return super().step(actions)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Write what is read, `delay` seconds after it came; several pieces may be on their way at a time."""
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def take() -> None:
        data = b" "
        while data:
            data = await reader.read(1 << 16)
            on_the_way.put_nowait((time.monotonic() + delay, data))

    taking = asyncio.ensure_future(take())
    try:
        while True:
            due, data = await on_the_way.get()
            await asyncio.sleep(due - time.monotonic())
            if not data:
                break
            writer.write(data)
        writer.write_eof()
    except OSError:
        writer.close()
    finally:
        taking.cancel()


async def proxy(port: int, delay: float) -> None:
    """Stand between clients and the server at `port`, on a port that the system chooses, until ended by a signal."""

    async def session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError):
            await asyncio.gather(pass_on(reader, server_writer, delay), pass_on(server_reader, writer, delay))
        writer.close()
        server_writer.close()

    listening = await asyncio.start_server(session, "127.0.0.1", 0)
    print(f"listening on 127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    async with listening:
        await listening.serve_forever()


def start_proxy(port: int, delay_ms: float) -> measure.Process:
    """The proxy in a process of its own; its output matches `floors.READY` once it listens."""
    command = [sys.executable, str(Path(__file__).resolve()), "--proxy", str(port), "--delay-ms", str(delay_ms)]
    return measure.Process(command, name=f"proxy of {delay_ms:g} ms")


# --- measuring -----------------------------------------------------------------------------------


def steps_per_second(
    port: int, uid: str, config: BaseEnvConfig, envs: int, groups: int, seconds: float, warm_up: float
) -> float:
    """The rate of one client in this process, with `envs` envs of the family `uid` in so many groups.

    Raises:
        BenchmarkError: the client failed, or took no step.
    """
    interrupts = Interrupts()
    begun = time.monotonic() + warm_up
    seen: list[tuple[float, int]] = []

    def look(snapshot: Snapshot) -> None:
        now = time.monotonic()
        if now >= begun and (not seen or snapshot.steps > seen[-1][1]):
            seen.append((now, snapshot.steps))
        if now >= begun + seconds:
            interrupts.request()

    options = ClientOptions(server_host="127.0.0.1", server_port=port, num_envs=envs, num_groups=groups, spin_us=0)
    options.check()
    run = Run(uid, config, options, seed=0, offset=0)
    finished = run_alone(run, interrupts=interrupts, show=look, interval=LOOK_SECONDS)
    if finished.error is not None:
        raise measure.BenchmarkError(f"the client of {envs} envs in {groups} groups failed: {finished.error}")
    if len(seen) < 2:
        raise measure.BenchmarkError(f"the client of {envs} envs in {groups} groups took too few steps to tell a rate")
    (first, steps_before), (last, steps) = seen[0], seen[-1]
    return (steps - steps_before) / (last - first)


def measure_rounds(args: argparse.Namespace, steps: measure.Steps) -> dict[str, list[float]]:
    """Steps per second of every contender, round by round, taking turns."""
    server_flags = ("--policy.action-horizon", "1")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(plugrl_peers.Server("dummy-policy", SHAPES["n1"], flags=server_flags))
        near = int(server.wait_for(plugrl_peers.READY, 60)[1])
        far = int(stack.enter_context(start_proxy(near, args.delay_ms)).wait_for(floors.READY, 30)[1])
        contenders = {
            "single_env": (far, 1, 1),
            "one_group": (far, args.envs, 1),
            "groups": (far, args.envs, args.envs),
            "undelayed_one_group": (near, args.envs, 1),
            "undelayed_groups": (near, args.envs, args.envs),
        }
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(args.rounds):
            for name, (port, envs, groups) in contenders.items():
                steps.begin(f"round {turn + 1}: {name}")
                busy = BusyConfig(cpu_ms=args.cpu_ms)
                rates[name].append(steps_per_second(port, UID, busy, envs, groups, args.seconds, args.warm_up))
    return rates


def results(rates: dict[str, list[float]], envs: int) -> dict[str, Any]:
    """The headline ratios, each the median over the rounds, with targets and bounds; then all rates.

    The undelayed rate is that of the better of one group and many, and the bounds follow from it and from the single
    env's rate, so that they hold for the machine as it was.
    """
    undelayed = [max(pair) for pair in zip(rates["undelayed_one_group"], rates["undelayed_groups"], strict=True)]
    ratios = {
        "overlap_16_groups": measure.median_ratio(rates["groups"], rates["one_group"]),
        "over_undelayed": measure.median_ratio(undelayed, rates["groups"]),
        "speedup_16_groups": measure.median_ratio(rates["groups"], rates["single_env"]),
    }
    best = min(statistics.median(undelayed), envs * statistics.median(rates["single_env"]))
    bounds = {
        "overlap_16_groups": round(best / statistics.median(rates["one_group"]), 3),
        "over_undelayed": round(statistics.median(undelayed) / best, 3),
        "speedup_16_groups": round(best / statistics.median(rates["single_env"]), 3),
    }
    targets = {
        key: {kind: limit, "met": ratios[key] >= limit if kind == "at_least" else ratios[key] <= limit}
        for key, (kind, limit) in TARGETS.items()
    }
    medians = {name: round(statistics.median(each), 2) for name, each in rates.items()}
    rounds = {name: [round(rate, 2) for rate in each] for name, each in rates.items()}
    return {**ratios, "targets": targets, "bounds": bounds, "steps_per_second": medians, "rounds": rounds}


def print_table(content: dict[str, Any]) -> None:
    """The rates, then one line for each ratio."""
    table = Table("client", "steps/s", title="env steps per second (medians of the rounds)")
    for name, rate in content["steps_per_second"].items():
        table.add_row(name, f"{rate:.1f}")
    measure.console.print(table)
    for key, target in content["targets"].items():
        verdict = "[green]met[/]" if target["met"] else "[red]missed[/]"
        (kind, limit), *_ = ((k, v) for k, v in target.items() if k != "met")
        words = f"target {kind.replace('_', ' ')} {limit:g}, as measured at best {content['bounds'][key]:.2f}"
        measure.console.print(f"{key} {content[key]:.2f}, {words}: {verdict}")


# --- command line --------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Groups that step while others wait, behind a slow line.")
    parser.add_argument("--proxy", type=int, metavar="PORT", help="be the proxy of the server at PORT until ended")
    parser.add_argument("--delay-ms", type=float, default=25.0, help="of the proxy, each way (default 25)")
    parser.add_argument("--cpu-ms", type=float, default=3.0, help="processor time of one env's step (default 3)")
    parser.add_argument("--envs", type=int, default=16, help="and as many groups (default 16)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each client (default 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured in each turn (default 5)")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="seconds before (default 1)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 2 seconds")
    measure.add_report_options(parser, time_limit=600)
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.envs < 2:
        parser.error("--rounds must be at least 1, --envs at least 2")
    if args.quick:
        args.rounds, args.seconds = 2, 2.0
    return args


def main(argv: list[str] | None = None) -> int:
    """Measure and report, or be the proxy."""
    args = parse(argv)
    if args.proxy is not None:
        asyncio.run(proxy(args.proxy, args.delay_ms / 1e3))
    names = ("quick", "rounds", "seconds", "warm_up", "envs", "cpu_ms", "delay_ms")
    settings = {**{name: getattr(args, name) for name in names}, "load_average_before": measure.load_average()}

    def find_results() -> dict[str, Any]:
        with measure.progress() as bar:
            return results(measure_rounds(args, measure.Steps(bar, 5 * args.rounds)), args.envs)

    return measure.carry_out("latency", args, settings, find_results, print_table)


if __name__ == "__main__":
    measure.run_script(main)
