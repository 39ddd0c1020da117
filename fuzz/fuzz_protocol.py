"""Throw bytes at the protocol: at one frame (`frame`), and at both ends of a connection (`conversation`).

See README.md.

    python fuzz/fuzz_protocol.py --seconds 60
    python fuzz/fuzz_protocol.py --replay build/fuzz/frame-0a1b2c3d4e5f.bin
"""

import argparse
import contextlib
import hashlib
import importlib.util
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import conversation_target
import corpus
import frame_target
from mutations import Mutator

Target = Callable[[bytes], str]

TARGETS: dict[str, Target] = {"frame": frame_target.run, "conversation": conversation_target.run}
FINDINGS = Path("build/fuzz")
SLOWEST = 5.0  # seconds of processor time that one input may take: a peer must not be able to hold the other up


class SlowError(BaseException):
    """An input took too long. No `except Exception` on the way may take it for something else."""


@dataclass
class Findings:
    """Inputs that broke a promise: one for each place where it came out, in a file each.

    Attributes:
        folder: Where they are written.
        files: Those written so far.
    """

    folder: Path
    files: list[Path] = field(default_factory=list)
    _places: set[str] = field(default_factory=set)

    def add(self, target: str, data: bytes, error: BaseException) -> None:
        """Write an input down, with what happened beside it, unless its kind is known."""
        place = f"{type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1][:2]}"
        if place in self._places:
            return
        self._places.add(place)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{target}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
        path.write_bytes(data)
        path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        self.files.append(path)
        say(f"FOUND {type(error).__name__}: {error}\n  replay: python fuzz/fuzz_protocol.py --replay {path}")


def say(text: str) -> None:
    """Tell whoever watches."""
    sys.stderr.write(f"{text}\n")


@contextlib.contextmanager
def watched(seconds: float = SLOWEST) -> Iterator[Callable[[], None]]:
    """Break off whatever takes more than `seconds` of processor time; what is yielded starts the time anew.

    Raises:
        SlowError: The time is up.
    """

    def too_slow(_signal: int, _frame: FrameType | None) -> None:
        raise SlowError(f"one input took over {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def play(target: str, data: bytes, findings: Findings) -> str:
    """One input; returns how it ended."""
    try:
        return TARGETS[target](data)
    except (Exception, SlowError) as error:
        findings.add(target, data, error)
        return f"FOUND {type(error).__name__}"


def seeded(target: str, findings: Findings, *, seed: int, inputs: int | None, seconds: float) -> Counter[str]:
    """The corpus, then mutations of it, until `inputs` are played or `seconds` are over; returns how each ended.

    An input that ends as none did before joins the pool: the next mutations start from it, too.
    """
    pool = list(corpus.load(target).values())
    mutator = Mutator(pool, seed)
    mutate = mutator.frame if target == "frame" else mutator.script
    ends: Counter[str] = Counter()
    began = told = time.monotonic()
    with watched() as start:
        for number in range(len(pool) + inputs if inputs is not None else sys.maxsize):
            data = pool[number] if number < len(pool) else mutate()
            start()
            end = play(target, data, findings)
            if end not in ends and number >= len(pool):
                mutator.pool.append(data)
            ends[end] += 1
            now = time.monotonic()
            if now - began > seconds:
                break
            if now - told > 10:
                told = now
                say(f"{target}: {number + 1} inputs, {len(ends)} ends, {len(findings.files)} findings")
    return ends


def guided(target: str, findings: Findings, *, seed: int, seconds: float) -> int:
    """Hand over to atheris, which looks at what each input reaches; returns the exit code. It ends the process."""
    import atheris

    folder = findings.folder / f"{target}-corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for data in corpus.load(target).values():
        (folder / hashlib.sha256(data).hexdigest()).write_bytes(data)
    mutator = Mutator(list(corpus.load(target).values()), seed)

    def mutate(data: bytes, longest: int, _seed: int) -> bytes:
        if len(mutator.pool) < 10_000:
            mutator.pool.append(data)
        mine = mutator.mutate_frame(data, mutator.pool) if target == "frame" else mutator.script()
        return (mine if _seed % 2 else bytes(atheris.Mutate(data, len(data) + 64)))[:longest]

    options = [f"-max_total_time={seconds:.0f}", f"-seed={seed + 1}", f"-timeout={4 * SLOWEST:.0f}", "-max_len=65600"]
    options += [f"-artifact_prefix={findings.folder}/{target}-", "-print_final_stats=1"]
    atheris.instrument_all()
    atheris.Setup(
        [sys.argv[0], *options, str(folder)], lambda data: TARGETS[target](data) and None, custom_mutator=mutate
    )
    atheris.Fuzz()
    return 0


def replay(path: Path, target: str | None) -> int:
    """Play one file; returns the exit code."""
    target = target or path.name.partition("-")[0]
    if target not in TARGETS:
        say(f"error: {path.name}: expected a name that begins with one of {', '.join(TARGETS)}, or --target")
        return 2
    try:
        data = path.read_bytes()
    except OSError as error:
        say(f"error: {path}: {error.strerror}")
        return 2
    try:
        with watched() as start:
            start()
            end = TARGETS[target](data)
    except (Exception, SlowError):
        traceback.print_exc()
        return 1
    say(f"{path}: {end}")
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description="Throw bytes at the protocol.")
    parser.add_argument("--target", choices=TARGETS, help="what to throw them at (default: each for the same time)")
    parser.add_argument("--seconds", type=float, default=60, help="for how long, all together (default 60)")
    parser.add_argument("--inputs", type=int, metavar="N", help="how many mutations of each at most")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default 0)")
    parser.add_argument("--engine", choices=("seeded", "atheris"), default="seeded", help="default: seeded")
    parser.add_argument("--findings", type=Path, default=FINDINGS, metavar="FOLDER", help=f"default: {FINDINGS}")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play this one input, and nothing else")
    args = parser.parse_args(argv)
    if not args.seconds > 0:
        parser.error("--seconds must be positive")
    if args.engine == "atheris" and args.target is None:
        parser.error("--engine atheris takes one --target at a time")
    if args.engine == "atheris" and importlib.util.find_spec("atheris") is None:
        parser.error("--engine atheris: atheris is not installed (pip install atheris)")
    return args


def main(argv: list[str] | None = None) -> int:
    """0: nothing was found; 1: something was, and is written down; 2: the options are wrong."""
    args = parse(argv)
    if args.replay is not None:
        return replay(args.replay, args.target)
    findings = Findings(args.findings)
    if args.engine == "atheris":
        return guided(args.target, findings, seed=args.seed, seconds=args.seconds)
    chosen = [args.target] if args.target else list(TARGETS)
    for target in chosen:
        ends = seeded(target, findings, seed=args.seed, inputs=args.inputs, seconds=args.seconds / len(chosen))
        say(f"{target}: {ends.total()} inputs ended in {len(ends)} ways, the most frequent:")
        for end, count in ends.most_common(10):
            say(f"  {count:9d}  {end}")
    say(f"{len(findings.files)} findings" + (f" in {args.findings}" if findings.files else ""))
    return 1 if findings.files else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
