"""`plugrl-conformance` and `plugrl-conformance-server`: the command lines of the checkers (SPEC 8)."""

import argparse
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from plugrl_protocol.conformance.calling.options import LEAST_EXCHANGES, ServerOptions
from plugrl_protocol.conformance.clauses import Side
from plugrl_protocol.conformance.client_scenarios.options import FEATURES, ClientOptions, scenario_names
from plugrl_protocol.conformance.exports.json_report import json_report
from plugrl_protocol.conformance.exports.junit_report import junit_report
from plugrl_protocol.conformance.known_failing import KnownFailing, KnownFailingError
from plugrl_protocol.conformance.probe_env import MAX_WIDTH
from plugrl_protocol.conformance.report import Report
from plugrl_protocol.errors import ProtocolError
from plugrl_protocol.spaces import ActionSpace, BoxSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace

EXIT_CLEAN, EXIT_VIOLATION, EXIT_USAGE, EXIT_FAILED = 0, 1, 2, 3
CLIENT_PROGRAM, SERVER_PROGRAM = "plugrl-conformance", "plugrl-conformance-server"

_DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool")
_SCENARIOS = ("basic", "resync", "text", "all")


def client_main(argv: Sequence[str] | None = None) -> int:
    """Grade a client.

    Returns:
        0: no violation; 1: a violation; 2: a mistake in the arguments; 3: the checker itself has failed.
    """
    parser = _client_parser()
    arguments = parser.parse_args(argv)
    return _run(parser, arguments, Side.CLIENT, _check_client)


def _run(
    parser: argparse.ArgumentParser,
    arguments: argparse.Namespace,
    graded: Side,
    check: Callable[[argparse.ArgumentParser, argparse.Namespace, Report], None],
) -> int:
    if find_spec("websockets") is None:
        _say(f"{parser.prog}: needs websockets: pip install 'plugrl-protocol[conformance]'")
        return EXIT_FAILED
    try:
        known = KnownFailing() if arguments.known_failing is None else KnownFailing.read(arguments.known_failing)
    except KnownFailingError as error:
        parser.error(f"--known-failing {error}")
    report = Report(parser.prog, graded, known.reason)
    try:
        check(parser, arguments, report)
        known.judge(report)
        sys.stdout.write(report.text() + "\n")
        _export(arguments, report)
    except OSError as error:
        _say(f"{parser.prog}: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say(f"{parser.prog}: interrupted")
        return EXIT_FAILED
    except Exception:
        _say(f"{parser.prog}: the checker itself has failed; please report this:\n{traceback.format_exc()}")
        return EXIT_FAILED
    if report.incomplete is not None:
        _say(f"{parser.prog}: {report.incomplete}")
    return {"pass": EXIT_CLEAN, "fail": EXIT_VIOLATION}.get(report.verdict, EXIT_FAILED)


def _export(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.json is not None:
        arguments.json.write_text(json_report(report), encoding="utf-8")
    if arguments.junit is not None:
        arguments.junit.write_text(junit_report(report), encoding="utf-8")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


# ---------------------------------------------------------------------------------------------------------- clients


def _client_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(CLIENT_PROGRAM, description="Grade an env client against the wire protocol.")
    _add_address(parser, "where to listen; port 0 takes any free one")
    parser.add_argument("--steps", type=_whole(1), default=20, help="exchanges until the run is ended (default: 20)")
    parser.add_argument("--horizon", type=_whole(1), default=4, help="steps of an action chunk (default: 4)")
    parser.add_argument(
        "--action-dim",
        type=_whole(0),
        default=7,
        help=f"elements of an action, at most {MAX_WIDTH} with --probe; 0: [H,n] (default: 7)",
    )
    parser.add_argument("--action-dtype", choices=_DTYPES, help="default: float32, with --probe float64")
    parser.add_argument(
        "--timeout", type=_seconds, default=120.0, help="seconds to wait for what is due (default: 120)"
    )
    parser.add_argument("--probe", action="store_true", help="the client runs the probe environment of SPEC 8.1")
    parser.add_argument("--scenario", choices=_SCENARIOS, help="with --probe, which to run (default: basic)")
    parser.add_argument("--features", default="", metavar="A,B", help=f"what to offer: {', '.join(FEATURES)}")
    parser.add_argument(
        "--client", metavar="CMD", help="shell command that starts the client; {host} and {port} are filled in"
    )
    _add_output(parser)
    return parser


def _check_client(parser: argparse.ArgumentParser, arguments: argparse.Namespace, report: Report) -> None:
    from plugrl_protocol.conformance.client_checker import check_client
    from plugrl_protocol.conformance.peer.listener import Listener

    options = _client_options(parser, arguments)
    listener = Listener(options.host, options.port)
    try:
        _say(f"{parser.prog}: listening on {options.host} port {listener.port}")
        start = "" if options.command is not None else ": start the client now"
        check_client(options, report, listener, lambda name: _say(f"{parser.prog}: {name}{start}"))
    finally:
        listener.close()


def _client_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> ClientOptions:
    features = frozenset(filter(None, arguments.features.split(",")))
    dtype = arguments.action_dtype or ("float64" if arguments.probe else "float32")
    try:
        return ClientOptions(
            host=arguments.host,
            port=arguments.port,
            steps=arguments.steps,
            horizon=arguments.horizon,
            action_dim=arguments.action_dim,
            action_dtype=np.dtype(dtype),
            timeout=arguments.timeout,
            scenarios=scenario_names(arguments.probe, arguments.scenario, features),
            features=features,
            command=arguments.client,
        )
    except ValueError as error:
        parser.error(str(error))


# ---------------------------------------------------------------------------------------------------------- servers


def server_main(argv: Sequence[str] | None = None) -> int:
    """Grade a server.

    Returns:
        0: no violation; 1: a violation; 2: a mistake in the arguments; 3: the server could not be graded to the end, or
        the checker itself has failed.
    """
    parser = _server_parser()
    arguments = parser.parse_args(argv)
    return _run(parser, arguments, Side.SERVER, _check_server)


def _server_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(SERVER_PROGRAM, description="Grade a training server against the wire protocol.")
    _add_address(parser, "where the server listens")
    parser.add_argument("--state-key", default="obs", help="name of the state to send (default: obs)")
    parser.add_argument("--state-dim", type=_whole(1), default=3, help="its width (default: 3)")
    parser.add_argument("--image-key", help="name of an image to send (default: none)")
    parser.add_argument("--image-size", type=_whole(1, 4096), default=224, help="its height and width (default: 224)")
    parser.add_argument(
        "--exchanges", type=_whole(LEAST_EXCHANGES), default=5, help="exchanges of the first phase (default: 5)"
    )
    parser.add_argument("--timeout", type=_seconds, default=60.0, help="seconds to wait for what is due (default: 60)")
    parser.add_argument("--until-stop", action="store_true", help="go on until the server ends its run")
    parser.add_argument("--max-exchanges", type=_whole(1), default=2000, help="... within so many (default: 2000)")
    parser.add_argument("--api-key", default=os.environ.get("PLUGRL_API_KEY"), help="default: PLUGRL_API_KEY")
    parser.add_argument(
        "--action-space",
        type=_space,
        metavar="KIND:SIZE",
        help="what to declare: box:N, discrete:N, multi_discrete:N,N or multi_binary:N "
        "(default: a box of the action_dim that the server tells, or of 1)",
    )
    parser.add_argument(
        "--server", metavar="CMD", help="shell command that starts the server; {host} and {port} are filled in"
    )
    _add_output(parser)
    return parser


def _check_server(parser: argparse.ArgumentParser, arguments: argparse.Namespace, report: Report) -> None:
    from plugrl_protocol.conformance.calling.caller import KeyNeededError
    from plugrl_protocol.conformance.server_checker import UnreachableError, check_server

    options = _server_options(parser, arguments)
    try:
        check_server(options, report)
    except KeyNeededError as error:
        parser.error(str(error))
    except UnreachableError as error:
        report.incomplete = str(error)


def _server_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> ServerOptions:
    port = arguments.port
    if port == 0 and arguments.server is not None:
        port = _free_port(arguments.host)
    try:
        return ServerOptions(
            host=arguments.host,
            port=port,
            state_key=arguments.state_key,
            state_dim=arguments.state_dim,
            image_key=arguments.image_key,
            image_size=arguments.image_size,
            exchanges=arguments.exchanges,
            timeout=arguments.timeout,
            until_stop=arguments.until_stop,
            max_exchanges=arguments.max_exchanges,
            api_key=arguments.api_key or None,
            space=arguments.action_space,
            command=arguments.server,
        )
    except ValueError as error:
        parser.error(str(error))


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        return int(probe.getsockname()[1])


def _space(text: str) -> ActionSpace:
    kind, _, size = text.partition(":")
    try:
        numbers = [int(number) for number in size.split(",")]
        if kind == "box" and len(numbers) == 1:
            bound = np.ones(numbers[0], np.float32)
            return BoxSpace((numbers[0],), np.dtype(np.float32), -bound, bound)
        if kind in _COUNTED and len(numbers) == 1:
            return _COUNTED[kind](numbers[0])
        if kind == "multi_discrete":
            return MultiDiscreteSpace(np.array(numbers))
    except (ValueError, ProtocolError):
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r}: expected such as box:3, discrete:2, multi_discrete:2,3, multi_binary:4"
    )


_COUNTED: dict[str, Callable[[int], ActionSpace]] = {"discrete": DiscreteSpace, "multi_binary": MultiBinarySpace}


# ----------------------------------------------------------------------------------------------------------- common


def _add_address(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--host", default="127.0.0.1", help=f"{what} (default: 127.0.0.1)")
    parser.add_argument("--port", type=_whole(0, 65_535), default=8000, help="default: 8000")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report there as JUnit XML")
    parser.add_argument(
        "--known-failing",
        type=Path,
        metavar="FILE",
        help="lines of GLOB: REASON; clauses that may fail, and must",
    )


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        expected = f"expected a whole number of {least} or more" if most is None else f"expected {least} to {most}"
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: {expected}") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text}: {expected}")
        return value

    return read


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a positive number of seconds")
    return value
