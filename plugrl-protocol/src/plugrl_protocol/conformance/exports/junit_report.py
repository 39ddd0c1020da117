"""The report as JUnit XML, which most CI systems show: a test case a clause."""

import re
from xml.etree import ElementTree as ET

from plugrl_protocol.conformance.report import Finding, Report

# What XML 1.0 cannot hold: most control characters, lone surrogates, and two non-characters.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_report(report: Report) -> str:
    """The report as a JUnit XML document: what was not exercised or is known to fail counts as skipped."""
    exercised, missing = report.exercised(), report.not_exercised()
    skipped = len(missing) + len({finding.clause for finding in report.known} - _clauses(report.violations))
    suite = ET.Element(
        "testsuite",
        name=report.program,
        tests=str(len(exercised) + len(missing)),
        failures=str(len(_clauses(report.violations))),
        errors="0",
        skipped=str(skipped),
    )
    for clause in exercised:
        _add_case(suite, report, clause)
    for clause in missing:
        ET.SubElement(_case(suite, report, clause), "skipped", message="not exercised")
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ET.Element, report: Report, clause: str) -> None:
    case = _case(suite, report, clause)
    failed = [finding for finding in report.violations if finding.clause == clause]
    known = [finding for finding in report.known if finding.clause == clause]
    noted = [finding for finding in report.notes if finding.clause == clause]
    if failed:
        failure = ET.SubElement(case, "failure", message=_clean(failed[0].detail))
        failure.text = _clean("\n".join(line for one in failed for line in (one.detail, *one.evidence)))
    elif known:
        ET.SubElement(case, "skipped", message=_clean(known[0].detail))
    if noted:
        ET.SubElement(case, "system-out").text = _clean("\n".join(f"note: {one.detail}" for one in noted))


def _case(suite: ET.Element, report: Report, clause: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=report.program, name=clause)


def _clauses(findings: list[Finding]) -> set[str]:
    return {finding.clause for finding in findings}


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)
