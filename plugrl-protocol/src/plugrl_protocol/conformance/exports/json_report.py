"""The report as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from plugrl_protocol.conformance.report import Finding, Report


def json_report(report: Report) -> str:
    """The report as a JSON document.

    Its keys: `program`; `verdict`, pass, fail or incomplete; `exchanges`; `violations` and `notes`, each with `clause`,
    `scenario` and `detail`, in the order found; `known_failing`, violations that were expected; `passed` and
    `not_exercised`, clause ids in numeric order; `remarks`.
    """
    content = {
        "program": report.program,
        "verdict": report.verdict,
        "exchanges": report.exchanges,
        "violations": _rows(report.violations),
        "notes": _rows(report.notes),
        "known_failing": _rows(report.known),
        "passed": [clause for clause in report.exercised() if report.has_passed(clause)],
        "not_exercised": report.not_exercised(),
        "remarks": report.remarks,
    }
    return json.dumps(content, indent=2) + "\n"


def _rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [{"clause": one.clause, "scenario": one.scenario, "detail": one.detail} for one in findings]
