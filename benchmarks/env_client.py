"""What the env client itself costs, and what many envs on one connection are worth.

The client runs its whole rollout (plan of chunks, checks, messages, masking) with an env that does nothing, against a
server that answers with canned frames; the least client that can do an exchange takes turns with it (canned.py). Then
CartPole in our adapter: 64 envs of one connection against 64 connections of one env, on the real server.

    python benchmarks/env_client.py --json results.json
"""

from __future__ import annotations

import argparse
import gc
import statistics
from dataclasses import dataclass
from typing import Any

import canned
import floors
import measure
import plugrl_peers
from latency import steps_per_second
from payloads import SHAPES, Shape
from plugrl_env_client.envs.gym_v1 import GymConfig
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.reconnect import Reconnector
from plugrl_env_client.reporting.tally import Tally
from plugrl_env_client.rollout import Rollout, RolloutOptions
from rich.table import Table

MINIMAL, RAW, CORE, OURS = "minimal", "raw", "core", "env_client"
TARGETS = {
    "cost_ratio_n1": ("at_most", 1.6),
    "cost_ratio_n8": ("at_most", 1.3),
    "cost_ratio_n64": ("at_most", 1.3),
    "cartpole_64_envs_over_64_connections": ("at_least", 5.0),
}
CARTPOLE_ENVS = 64


@dataclass(frozen=True)
class Block:
    """One turn of a client: wall time of its exchanges, and its processor time for one."""

    durations: measure.Durations
    cpu_us: float


Rounds = dict[str, list[Block]]


# --- one exchange --------------------------------------------------------------------------------


def run_minimal(port: int, shape: Shape, env: canned.CannedEnv, exchanges: int) -> None:
    """The least client that keeps RFC 6455."""
    client = canned.MinimalClient(port, shape)
    client.run(env, exchanges)
    client.close()


def run_raw(port: int, shape: Shape, env: canned.CannedEnv, exchanges: int) -> None:
    """What no client goes below."""
    client = canned.RawClient(port, shape)
    client.run(env, exchanges)
    client.close()


def run_core(port: int, shape: Shape, env: canned.CannedEnv, exchanges: int) -> None:
    """The least client on the protocol's own messages and rules."""
    client = canned.CoreClient(port, shape)
    client.run(env, exchanges)
    client.close()


def run_ours(port: int, shape: Shape, env: canned.CannedEnv, exchanges: int) -> None:
    """The env client from its rollout down; like the least client it sleeps at once while it waits."""
    address, interrupts = Address("127.0.0.1", port), Interrupts()

    def connect() -> Link:
        return Link.open(
            address,
            connect_timeout=10,
            action_timeout=None,
            max_frame=plugrl_peers.MAX_FRAME,
            api_key=None,
            interrupts=interrupts,
            spin=0.0,
        )

    Rollout(
        env,
        Reconnector(address, connect, max_reconnects=0, sleep=lambda _: None),
        RolloutOptions(num_steps=exchanges * shape.envs),
        interrupts=interrupts,
        tally=Tally(env.num_envs),
        progress=lambda _: None,
    ).run()


CLIENTS = {MINIMAL: run_minimal, RAW: run_raw, CORE: run_core, OURS: run_ours}


def one_block(name: str, port: int, shape: Shape, count: int) -> Block:
    """Connect, warm up, measure, close."""
    env = canned.CannedEnv(shape, count, floors.WARM_UP)
    gc.collect()
    CLIENTS[name](port, shape, env, floors.WARM_UP + count + 1)
    return Block(measure.Durations.of(env.stamps), env.cpu_us)


def measure_shape(shape: Shape, rounds: int, count: int, steps: measure.Steps) -> Rounds:
    """`rounds` interleaved blocks of `count` exchanges of each client."""
    measured: Rounds = {name: [] for name in CLIENTS}
    with canned.start_server(shape) as server:
        port = int(server.wait_for(floors.READY, 30)[1])
        for turn in range(rounds):
            for name in CLIENTS if turn % 2 else reversed(CLIENTS):
                steps.begin(f"{shape.name}, round {turn + 1}: {name}")
                measured[name].append(one_block(name, port, shape, count))
    return measured


# --- many envs -----------------------------------------------------------------------------------


def measure_cartpole(args: argparse.Namespace, steps: measure.Steps) -> dict[str, list[float]]:
    """Steps per second of one connection with all envs, and of as many connections as envs (groups of one process)."""
    rates: dict[str, list[float]] = {"one_connection": [], "connections": []}
    with plugrl_peers.Server("dummy-policy", SHAPES["n64"], flags=("--policy.action-horizon", "1")) as server:
        port = int(server.wait_for(plugrl_peers.READY, 60)[1])
        for turn in range(args.cartpole_rounds):
            for name, groups in (("one_connection", 1), ("connections", args.envs)):
                steps.begin(f"CartPole, round {turn + 1}: {name}")
                config = GymConfig(id="CartPole-v1")
                rate = steps_per_second(port, "gym-v1", config, args.envs, groups, args.seconds, args.warm_up)
                rates[name].append(rate)
    return rates


# --- reporting -----------------------------------------------------------------------------------


def shape_results(measured: Rounds) -> dict[str, Any]:
    """Each client's medians and least processor time, and the ratios of ours to the least clients."""
    found: dict[str, Any] = {}
    for name, blocks in measured.items():
        cpu = [block.cpu_us for block in blocks]
        median = measure.Durations.median_of([block.durations for block in blocks])
        found[name] = {
            **median.to_json(),
            "cpu_us": round(statistics.median(cpu), 2),
            "least_cpu_us": round(min(cpu), 2),
        }
    ours, least = measured[OURS], measured[MINIMAL]
    found["ratio_cpu"] = measure.median_ratio([b.cpu_us for b in ours], [b.cpu_us for b in least])
    found["ratio_least_cpu"] = round(min(b.cpu_us for b in ours) / min(b.cpu_us for b in least), 3)
    for name in (RAW, CORE):
        found[f"ratio_{name}"] = measure.median_ratio([b.cpu_us for b in ours], [b.cpu_us for b in measured[name]])
    found["ratio_wall"] = measure.median_ratio([b.durations.mean for b in ours], [b.durations.mean for b in least])
    return found


def results(shapes: dict[str, Rounds], cartpole: dict[str, list[float]]) -> dict[str, Any]:
    """The headline ratios and targets first, then everything measured."""
    tables = {name: shape_results(measured) for name, measured in shapes.items()}
    ratios = {f"cost_ratio_{name}": table["ratio_cpu"] for name, table in tables.items()}
    ratios["cartpole_64_envs_over_64_connections"] = measure.median_ratio(
        cartpole["one_connection"], cartpole["connections"]
    )
    targets = {
        key: {kind: limit, "met": ratios[key] >= limit if kind == "at_least" else ratios[key] <= limit}
        for key, (kind, limit) in TARGETS.items()
        if key in ratios
    }
    medians = {name: round(statistics.median(rates), 1) for name, rates in cartpole.items()}
    return {**ratios, "targets": targets, "shapes": tables, "cartpole_steps_per_second": medians}


def print_table(content: dict[str, Any]) -> None:
    """One line for each shape and client, one for each target."""
    table = Table("shape", "client", title="one exchange, microseconds (medians of the rounds)")
    for column in ("cpu", "least cpu", "wall mean", "wall p50"):
        table.add_column(column, justify="right")
    for shape, found in content["shapes"].items():
        for name in CLIENTS:
            figures = (found[name][key] for key in ("cpu_us", "least_cpu_us", "mean_us", "p50_us"))
            table.add_row(shape, name, *(f"{figure:.1f}" for figure in figures))
        ratios = (found[key] for key in ("ratio_cpu", "ratio_least_cpu", "ratio_wall"))
        table.add_row(shape, "ours / minimal", *(f"{ratio:.2f}" for ratio in ratios))
        table.add_row(shape, "ours / raw", f"{found['ratio_raw']:.2f}")
        table.add_row(shape, "ours / core", f"{found['ratio_core']:.2f}", end_section=True)
    measure.console.print(table)
    measure.console.print(f"CartPole, steps per second: {content['cartpole_steps_per_second']}")
    for key, target in content["targets"].items():
        verdict = "[green]met[/]" if target["met"] else "[red]missed[/]"
        kind, limit = TARGETS[key]
        measure.console.print(f"{key} {content[key]:.2f}, target {kind.replace('_', ' ')} {limit:g}: {verdict}")


# --- command line --------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Cost of the env client, against the least client.")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this one (repeatable; default all)")
    parser.add_argument("--rounds", type=int, default=25, help="interleaved blocks of each client (default 25)")
    parser.add_argument("--cartpole-rounds", type=int, default=3, help="turns of both CartPole clients (default 3)")
    parser.add_argument("--envs", type=int, default=CARTPOLE_ENVS, help="of CartPole (default 64)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of CartPole in each turn (default 4)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before (default 1)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of a tenth of the exchanges, 1 of CartPole")
    measure.add_report_options(parser, time_limit=600)
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.cartpole_rounds < 1 or args.envs < 2:
        parser.error("--rounds and --cartpole-rounds must be at least 1, --envs at least 2")
    if args.quick:
        args.rounds, args.cartpole_rounds, args.seconds = 2, 1, 1.0
    return args


def exchanges(shape: Shape, args: argparse.Namespace) -> int:
    """How many a block has."""
    return shape.exchanges // 10 if args.quick else shape.exchanges


def main(argv: list[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    chosen = [SHAPES[name] for name in args.shape or SHAPES]
    names = ("quick", "rounds", "cartpole_rounds", "envs", "seconds", "warm_up")
    settings = {**{name: getattr(args, name) for name in names}, "load_average_before": measure.load_average()}

    def find_results() -> dict[str, Any]:
        with measure.progress() as bar:
            steps = measure.Steps(bar, len(CLIENTS) * args.rounds * len(chosen) + 2 * args.cartpole_rounds)
            shapes = {shape.name: measure_shape(shape, args.rounds, exchanges(shape, args), steps) for shape in chosen}
            return results(shapes, measure_cartpole(args, steps))

    return measure.carry_out("env_client", args, settings, find_results, print_table)


if __name__ == "__main__":
    measure.run_script(main)
