"""Grades a client: one scenario after the other, each to its end or to its first violation."""

from collections.abc import Callable

from plugrl_protocol.conformance.client_scenarios.options import ClientOptions
from plugrl_protocol.conformance.client_scenarios.probe import basic, refusal, resync, text
from plugrl_protocol.conformance.client_scenarios.stage import Stage
from plugrl_protocol.conformance.client_scenarios.watch import watch
from plugrl_protocol.conformance.peer.listener import Listener
from plugrl_protocol.conformance.report import Report

_SCENARIOS: dict[str, Callable[[Stage], None]] = {
    "watch": watch,
    "basic": basic,
    "resync": resync,
    "text": text,
    "reject": refusal,
}


def check_client(
    options: ClientOptions, report: Report, listener: Listener, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Run the scenarios of `options`.

    Args:
        options: What to do.
        report: Where to count and note.
        listener: Where the client comes.
        announce: Told the name of each scenario before it waits for the client.
    """
    for number, name in enumerate(options.scenarios, start=1):
        announce(name)
        stage = Stage(options, report, listener)
        stage.play(name, _SCENARIOS[name])
        rest = options.scenarios[number:]
        if rest and not stage.met:
            report.remarks.append(f"not run, since no client came: {', '.join(rest)}")
            return
