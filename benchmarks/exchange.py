"""What one infer -> action -> feedback exchange costs, against two floors measured in the same run.

The contenders take turns, block by block, on the same messages (payloads.py); a ratio is that of two blocks of the
same round, and the median over the rounds is reported. All servers are processes of their own.

    python benchmarks/exchange.py --json results.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import floors
import measure
import plugrl_peers
from measure import Durations
from payloads import SHAPES, Shape
from rich.table import Table
from websocket_peers import RawClient, StockClient, start_stock_server

FLOOR = "codec"
NOISY = 1.3  # a floor whose mean is this many times its p50 was measured beside something else
# The first targets: with `dummy-policy` and one client, at most this many times the codec floor.
TARGETS = {"n1": 3.0, "n64": 2.5, "image": 2.0}
SLEEP_AT_ONCE = 0.0  # `--spin-us` of both ends, for the contender that never polls; the others have the default, auto


@dataclass(frozen=True)
class Contender:
    """One client and the name of the server it drives."""

    server: str
    connect: Callable[[int, Shape], floors.Client]
    images: bool = True


SERVERS: dict[str, tuple[Callable[[Shape], measure.Process], str]] = {
    "bytes": (partial(floors.start_server, "bytes"), floors.READY),
    "codec": (partial(floors.start_server, "codec"), floors.READY),
    "websockets": (start_stock_server, floors.READY),
    "dummy": (partial(plugrl_peers.Server, "dummy-policy"), plugrl_peers.READY),
    "dummy_sleep": (partial(plugrl_peers.Server, "dummy-policy", spin_us=SLEEP_AT_ONCE), plugrl_peers.READY),
    "gaussian": (partial(plugrl_peers.Server, "gaussian-policy"), plugrl_peers.READY),
}

CONTENDERS: dict[str, Contender] = {
    "bytes": Contender("bytes", floors.BytesClient),
    "codec": Contender("codec", floors.CodecClient),
    "websockets": Contender("websockets", StockClient),
    "plugrl": Contender("dummy", plugrl_peers.LinkClient),
    "plugrl_raw_client": Contender("dummy", RawClient),
    "plugrl_sleep": Contender("dummy_sleep", partial(plugrl_peers.LinkClient, spin_us=SLEEP_AT_ONCE)),
    "plugrl_gaussian": Contender("gaussian", plugrl_peers.LinkClient, images=False),
}


@dataclass(frozen=True)
class Block:
    """One timed block of a contender: durations, and processor time of each process for one exchange."""

    durations: Durations
    server_cpu_us: float | None  # None where the system does not tell
    client_cpu_us: float


Rounds = dict[str, list[Block]]


# --- measuring -----------------------------------------------------------------------------------


Servers = dict[str, tuple[measure.Process, int]]


def measure_shape(shape: Shape, names: list[str], rounds: int, count: int, steps: measure.Steps) -> Rounds:
    """`rounds` interleaved blocks of `count` exchanges for each contender; servers live as long as the shape."""
    measured: Rounds = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        servers = start_servers(stack, shape, names)
        for turn in range(rounds):
            for i in range(len(names)):
                name = names[(turn + i) % len(names)]
                steps.begin(f"{shape.name}, round {turn + 1}: {name}")
                measured[name].append(one_block(CONTENDERS[name], servers, shape, count))
    return measured


def start_servers(stack: contextlib.ExitStack, shape: Shape, names: list[str]) -> Servers:
    """Start the servers that these contenders need, all at once; returns each with its port."""
    wanted = dict.fromkeys(CONTENDERS[name].server for name in names)
    processes = {server: stack.enter_context(SERVERS[server][0](shape)) for server in wanted}
    return {server: (p, int(p.wait_for(SERVERS[server][1], 60)[1])) for server, p in processes.items()}


def one_block(contender: Contender, servers: Servers, shape: Shape, count: int) -> Block:
    """Connect, warm up, measure, close."""
    process, port = servers[contender.server]
    client = contender.connect(port, shape)
    try:
        floors.warm_up(client)
        gc.collect()
        server_before, client_before = process.cpu_ns(), time.process_time_ns()
        durations = floors.timed_block(client, count)
        server_after, client_after = process.cpu_ns(), time.process_time_ns()
    finally:
        client.close()
    client_cpu_us = (client_after - client_before) / count / 1e3
    if server_before is None or server_after is None:
        return Block(durations, None, client_cpu_us)
    return Block(durations, (server_after - server_before) / count / 1e3, client_cpu_us)


def contenders_for(shape: Shape, chosen: list[str]) -> list[str]:
    """The chosen contenders that can carry this shape, and the codec floor."""
    return [n for n in CONTENDERS if n in (*chosen, FLOOR) and (CONTENDERS[n].images or not shape.images)]


# --- reporting -----------------------------------------------------------------------------------


def shape_results(measured: Rounds) -> dict[str, dict[str, Any]]:
    """For each contender its medians and its ratio to the floor, by mean (throughput) and by p50."""
    found = {}
    floor = [block.durations for block in measured[FLOOR]]
    for name, blocks in measured.items():
        rounds = [block.durations for block in blocks]
        found[name] = {
            **Durations.median_of(rounds).to_json(),
            "server_cpu_us": median_or_none([block.server_cpu_us for block in blocks]),
            "client_cpu_us": median_or_none([block.client_cpu_us for block in blocks]),
            "ratio_codec": measure.median_ratio([r.mean for r in rounds], [f.mean for f in floor]),
            "ratio_codec_p50": measure.median_ratio([r.p50 for r in rounds], [f.p50 for f in floor]),
        }
    return found


def median_or_none(figures: list[float | None]) -> float | None:
    """The median of the known figures, None when there are none."""
    known = [figure for figure in figures if figure is not None]
    return round(statistics.median(known), 2) if known else None


def results(shapes: dict[str, Rounds]) -> dict[str, Any]:
    """The headline ratios (`plugrl` against the codec floor) and targets first, then everything measured."""
    tables = {name: shape_results(measured) for name, measured in shapes.items()}
    ratios = {name: table["plugrl"]["ratio_codec"] for name, table in tables.items() if "plugrl" in table}
    targets = {
        f"ratio_codec_{name}": {"at_most": limit, "met": ratios[name] <= limit}
        for name, limit in TARGETS.items()
        if name in ratios
    }
    noisy = [name for name, table in tables.items() if table[FLOOR]["mean_us"] > NOISY * table[FLOOR]["p50_us"]]
    headline = {f"ratio_codec_{name}": r for name, r in ratios.items()}
    return {**headline, "targets": targets, "noisy_shapes": noisy, "shapes": tables}


def print_table(content: dict[str, Any]) -> None:
    """One line for each shape and contender."""
    table = Table("shape", "contender", title="one exchange, microseconds (medians of the rounds)")
    columns = {
        "mean": "mean_us",
        "p50": "p50_us",
        "p99": "p99_us",
        "cpu srv": "server_cpu_us",
        "cpu cli": "client_cpu_us",
    }
    for column in ("per s", *columns, "x codec"):
        table.add_column(column, justify="right")
    for shape, contenders in content["shapes"].items():
        for name, f in contenders.items():
            figures = ("-" if f[key] is None else f"{f[key]:.0f}" for key in columns.values())
            table.add_row(shape, name, f"{f['per_second']:.0f}", *figures, f"{f['ratio_codec']:.2f}")
        table.add_section()
    measure.console.print(table)
    for key, target in content["targets"].items():
        verdict = "[green]met[/]" if target["met"] else "[red]missed[/]"
        measure.console.print(f"{key} {content[key]:.2f}, target at most {target['at_most']}: {verdict}")
    if content["noisy_shapes"]:
        shapes = ", ".join(content["noisy_shapes"])
        measure.console.print(
            f"[yellow]the machine was busy while {shapes} was measured: do not quote these figures[/]"
        )


# --- command line --------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Cost of one exchange, against two floors.")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this one (repeatable; default all)")
    parser.add_argument("--contender", choices=CONTENDERS, action="append", help="only this one and the codec floor")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved blocks of each contender (default 9)")
    parser.add_argument("--quick", action="store_true", help="2 rounds of a tenth of the exchanges")
    measure.add_report_options(parser, time_limit=900)
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if args.quick:
        args.rounds = 2
    return args


def measure_all(args: argparse.Namespace) -> dict[str, Rounds]:
    """Every chosen shape, one after the other."""
    plans = {shape: contenders_for(SHAPES[shape], args.contender or list(CONTENDERS)) for shape in args.shape or SHAPES}
    measured = {}
    with measure.progress() as bar:
        steps = measure.Steps(bar, args.rounds * sum(map(len, plans.values())))
        for name, contenders in plans.items():
            shape = SHAPES[name]
            count = shape.exchanges // 10 if args.quick else shape.exchanges
            measured[name] = measure_shape(shape, contenders, args.rounds, count, steps)
    return measured


def main(argv: list[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    settings = {
        "quick": args.quick,
        "rounds": args.rounds,
        "load_average_before": measure.load_average(),
        "exchanges_per_block": {n: s.exchanges // 10 if args.quick else s.exchanges for n, s in SHAPES.items()},
        "warm_up": floors.WARM_UP,
    }
    return measure.carry_out("exchange", args, settings, lambda: results(measure_all(args)), print_table)


if __name__ == "__main__":
    measure.run_script(main)
