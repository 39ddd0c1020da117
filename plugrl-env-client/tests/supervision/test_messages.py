"""What a child says goes through a pipe."""

import logging
import multiprocessing

from plugrl_env_client.client import Vital
from plugrl_env_client.reporting.tally import nothing_yet
from plugrl_env_client.supervision.messages import Report, Said


def test_messages_travel():
    ours, theirs = multiprocessing.Pipe(duplex=False)
    theirs.send(Report(nothing_yet(3), (Vital(1, busy=True),), writing=True))
    theirs.send(Said(logging.WARNING, "so it is"))
    report, said = ours.recv(), ours.recv()
    assert (report.vitals, report.snapshot.env_steps.tolist(), report.writing) == (((1, True),), [0, 0, 0], True)
    assert said == Said(logging.WARNING, "so it is")
