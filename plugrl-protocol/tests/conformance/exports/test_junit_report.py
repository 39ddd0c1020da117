"""The report as JUnit XML."""

from xml.etree import ElementTree as ET

from plugrl_protocol.conformance.clauses import Side
from plugrl_protocol.conformance.exports.junit_report import junit_report
from plugrl_protocol.conformance.report import Report


def suite_of(report: Report) -> ET.Element:
    return ET.fromstring(junit_report(report))


def test_a_case_a_clause():
    report = Report("plugrl-conformance", Side.CLIENT)
    report.begin("watch")
    report.passed("4.2 exchange/alternation")
    report.violation("5.4 feedback/keys", "info is missing", ["the frame"])
    report.note("3.4 observation/text", "text is a list")
    suite = suite_of(report)
    cases = {case.get("name"): case for case in suite}

    assert suite.get("tests") == str(len(cases)) == str(len(report.exercised()) + len(report.not_exercised()))
    assert suite.get("failures") == "1"
    assert suite.get("skipped") == str(len(report.not_exercised()))
    assert cases["4.2 exchange/alternation"].find("failure") is None
    assert cases["5.4 feedback/keys"].find("failure").get("message") == "info is missing"
    assert "the frame" in cases["5.4 feedback/keys"].find("failure").text
    assert cases["3.4 observation/text"].find("system-out").text == "note: text is a list"
    assert cases["5.1 metadata/wait"].find("skipped").get("message") == "not exercised"


def test_a_known_failure_is_skipped():
    report = Report("plugrl-conformance", Side.CLIENT, lambda _: "later")
    report.violation("5.4 feedback/keys", "info is missing")
    suite = suite_of(report)

    assert suite.get("failures") == "0"
    assert suite.find("testcase[@name='5.4 feedback/keys']/skipped").get("message") == "info is missing (known: later)"


def test_what_a_peer_wrote_cannot_break_the_document():
    report = Report("plugrl-conformance", Side.CLIENT)
    report.violation("5.4 feedback/keys", "key '\x00\x1b<&\ud800'", ["]]> \x07"])
    failure = suite_of(report).find("testcase/failure")

    assert failure.get("message") == "key '??<&?'"
    assert "]]> ?" in failure.text
