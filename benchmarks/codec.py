"""What the codec costs: encode and decode against plain msgpack with ndarray hooks, and against memcpy.

The contenders take turns, block by block, on the same messages (payloads.py), which are made anew for each round; a
ratio is that of two blocks of the same round, and the median over the rounds is reported. What is measured is
processor time, so that it does not matter who else wants the processor; caches are shared all the same.

    python benchmarks/codec.py --json codec.json
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import measure
import numpy as np
import payloads
from payloads import Message, Shape
from plugrl_protocol.codec import decode, encode
from plugrl_protocol.messages import message_from_wire
from rich.table import Table

SHAPES = {**payloads.SHAPES, "image8": Shape("image8", 8, images=True)}
LARGE = 100_000  # bytes of a frame: from here on memcpy is the yardstick, below it plain msgpack

Call = Callable[[], Any]


def action(shape: Shape) -> Message:
    """The answer to the shape's infer."""
    return payloads.action(payloads.action_chunk(shape.envs), np.arange(shape.envs))


MESSAGES: dict[str, Callable[[Shape], Message]] = {
    "infer": payloads.infer,
    "action": action,
    "feedback": payloads.feedback,
}


def read(frame: bytes) -> Any:
    """What an end does with a frame: decode it and check the message against its turn's rules."""
    return message_from_wire(decode(frame))


CONTENDERS: dict[str, Callable[[Message, bytes], Call]] = {
    "copy": lambda _, frame: partial(bytes, memoryview(frame)),  # one memcpy into new memory
    "encode": lambda message, _: partial(encode, message),
    "plain_encode": lambda message, _: partial(payloads.pack, message),
    "decode": lambda _, frame: partial(decode, frame),
    "plain_decode": lambda _, frame: partial(payloads.unpack, frame),
    "read": lambda _, frame: partial(read, frame),
}


@dataclass(frozen=True)
class Target:
    """A bound for one headline figure: the worst of `figure` over the small or the large frames.

    Attributes:
        figure: its name in the figures of one message.
        large: which frames.
        at_most: the upper bound, or None.
        at_least: the lower bound, or None.
    """

    figure: str
    large: bool
    at_most: float | None = None
    at_least: float | None = None

    @property
    def name(self) -> str:
        """Its name in the report."""
        return f"{self.figure}_{'large' if self.large else 'small'}"

    def judge(self, figures: list[float]) -> tuple[float, dict[str, Any]]:
        """The worst of the figures, and how it compares."""
        if self.at_most is not None:
            return max(figures), {"at_most": self.at_most, "met": max(figures) <= self.at_most}
        return min(figures), {"at_least": self.at_least, "met": min(figures) >= self.at_least}


TARGETS = (
    Target("encode_x_plain", large=False, at_most=1.5),
    Target("decode_x_plain", large=False, at_most=1.5),
    Target("encode_of_copy", large=True, at_least=0.5),
    Target("encode_peak_frames", large=True, at_most=1.1),
    Target("decode_peak_frames", large=True, at_most=0.1),  # no copy of a payload
)


# --- measuring -----------------------------------------------------------------------------------


Blocks = dict[str, list[float]]  # microseconds of one call, by contender, one a round


def measure_message(shape: Shape, kind: str, rounds: int, block_us: float) -> dict[str, float]:
    """All figures of one message."""
    make = MESSAGES[kind]
    frame = encode(make(shape))
    if frame != payloads.pack(make(shape)):
        raise measure.BenchmarkError(f"{shape.name} {kind}: our bytes differ from those of plain msgpack")
    repetitions = {name: calibrate(call, block_us) for name, call in calls(make(shape))}
    blocks: Blocks = {name: [] for name in CONTENDERS}
    for turn in range(rounds):
        ready = list(calls(make(shape)))
        gc.collect()
        for name, call in ready[turn % len(ready) :] + ready[: turn % len(ready)]:
            blocks[name].append(block(call, repetitions[name]))
    return {**figures(len(frame), blocks), **(peaks(make(shape)) if len(frame) >= LARGE else {})}


def calls(message: Message) -> Iterator[tuple[str, Call]]:
    """What each contender has to do with a message."""
    frame = encode(message)
    return ((name, prepare(message, frame)) for name, prepare in CONTENDERS.items())


def calibrate(call: Call, block_us: float) -> int:
    """How often to call for a block of about `block_us` microseconds."""
    call()
    count = 1
    while (each := block(call, count)) * count < block_us / 2:
        count *= 2
    return max(1, round(block_us / each))


def block(call: Call, count: int) -> float:
    """Microseconds of processor time for one of `count` calls."""
    turns = range(count)
    began = time.thread_time_ns()
    for _ in turns:
        call()
    return (time.thread_time_ns() - began) / count / 1e3


def peaks(message: Message) -> dict[str, float]:
    """The most memory that is allocated during a call (an encoded frame is part of it), in frames."""
    frame = encode(message)
    return {
        "encode_peak_frames": round(peak(partial(encode, message)) / len(frame), 3),
        "decode_peak_frames": round(peak(partial(decode, frame)) / len(frame), 3),
    }


def peak(call: Call) -> int:
    """Bytes that Python and NumPy had allocated at the worst moment of a call, beyond what there was before."""
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


# --- reporting -----------------------------------------------------------------------------------


def figures(size: int, blocks: Blocks) -> dict[str, float]:
    """Medians and ratios of one message; GB/s are bytes of the frame."""
    us = {name: float(np.median(each)) for name, each in blocks.items()}
    return {
        "bytes": size,
        **{f"{name}_us": round(each, 2) for name, each in us.items()},
        **{f"{name}_gb_s": round(size / us[name] / 1e3, 2) for name in ("copy", "encode", "decode")},
        "encode_x_plain": measure.median_ratio(blocks["encode"], blocks["plain_encode"]),
        "decode_x_plain": measure.median_ratio(blocks["decode"], blocks["plain_decode"]),
        "read_x_plain": measure.median_ratio(blocks["read"], blocks["plain_decode"]),
        "encode_of_copy": measure.median_ratio(blocks["copy"], blocks["encode"]),
        "decode_of_copy": measure.median_ratio(blocks["copy"], blocks["decode"]),
    }


def results(messages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The worst figures and their targets first, then everything measured."""
    headline, targets = {}, {}
    for target in TARGETS:
        found = [m[target.figure] for m in messages.values() if (m["bytes"] >= LARGE) == target.large]
        if found:
            headline[target.name], targets[target.name] = target.judge(found)
    return {**headline, "targets": targets, "messages": messages}


def print_table(content: dict[str, Any]) -> None:
    """One line for each message."""
    table = Table("message", title="microseconds of a call, x plain msgpack, GB/s (medians of the rounds)")
    columns = {
        "bytes": ("bytes", ".0f"),
        "encode": ("encode_us", ".2f"),
        "x plain": ("encode_x_plain", ".2f"),
        "decode": ("decode_us", ".2f"),
        "x plain ": ("decode_x_plain", ".2f"),
        "decode + check": ("read_us", ".2f"),
        "memcpy": ("copy_us", ".2f"),
        "encode GB/s": ("encode_gb_s", ".1f"),
        "decode GB/s": ("decode_gb_s", ".1f"),
        "memcpy GB/s": ("copy_gb_s", ".1f"),
    }
    for column in columns:
        table.add_column(column, justify="right")
    for name, found in content["messages"].items():
        table.add_row(name, *(format(found[key], form) for key, form in columns.values()))
    measure.console.print(table)
    for name, target in content["targets"].items():
        verdict = "[green]met[/]" if target["met"] else "[red]missed[/]"
        bound = f"at most {target['at_most']}" if "at_most" in target else f"at least {target['at_least']}"
        measure.console.print(f"{name} {content[name]:.2f}, target {bound}: {verdict}")


# --- command line --------------------------------------------------------------------------------


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Cost of encoding and decoding, against plain msgpack and memcpy.")
    parser.add_argument("--shape", choices=SHAPES, action="append", help="only this one (repeatable; default all)")
    parser.add_argument("--rounds", type=int, default=100, help="interleaved blocks of each contender (default 100)")
    parser.add_argument("--block-us", type=float, default=1000, metavar="US", help="length of a block (default 1000)")
    parser.add_argument("--quick", action="store_true", help="5 rounds of a fifth of the length")
    measure.add_report_options(parser, time_limit=300)
    args = parser.parse_args(argv)
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not args.block_us > 0:
        parser.error("--block-us must be positive")
    if args.quick:
        args.rounds, args.block_us = 5, args.block_us / 5
    return args


def measure_all(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Every message of every chosen shape."""
    chosen = [(SHAPES[name], kind) for name in args.shape or SHAPES for kind in MESSAGES]
    measured = {}
    with measure.progress() as bar:
        steps = measure.Steps(bar, len(chosen))
        for shape, kind in chosen:
            name = f"{shape.name} {kind}"
            steps.begin(name)
            measured[name] = measure_message(shape, kind, args.rounds, args.block_us)
    return measured


def main(argv: list[str] | None = None) -> int:
    """Measure and report."""
    args = parse(argv)
    settings = {"quick": args.quick, "rounds": args.rounds, "block_us": args.block_us}
    return measure.carry_out("codec", args, settings, lambda: results(measure_all(args)), print_table)


if __name__ == "__main__":
    measure.run_script(main)
