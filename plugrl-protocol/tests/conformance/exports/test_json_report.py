"""The report as JSON (wire 8)."""

import json

from plugrl_protocol.conformance.clauses import Side
from plugrl_protocol.conformance.exports.json_report import json_report
from plugrl_protocol.conformance.report import Report


def test_the_keys_that_other_programs_rely_on():
    report = Report("plugrl-conformance", Side.CLIENT)
    report.begin("basic")
    report.exchanges = 7
    report.passed("4.2 exchange/alternation")
    report.violation("5.4 feedback/keys", "b", ["a frame"])
    report.violation("1.1 framing/size", "a")
    report.note("3.4 observation/text", "text is a list")
    content = json.loads(json_report(report))

    assert content["verdict"] == "fail"
    assert content["exchanges"] == 7
    assert content["violations"] == [
        {"clause": "5.4 feedback/keys", "scenario": "basic", "detail": "b"},
        {"clause": "1.1 framing/size", "scenario": "basic", "detail": "a"},
    ]
    assert content["notes"] == [{"clause": "3.4 observation/text", "scenario": "basic", "detail": "text is a list"}]
    assert content["passed"] == ["4.2 exchange/alternation"]
    assert content["not_exercised"] == report.not_exercised()
    assert content["known_failing"] == []


def test_known_failures_do_not_count_as_violations():
    report = Report("plugrl-conformance", Side.CLIENT, lambda _: "later")
    report.violation("5.4 feedback/keys", "b")
    content = json.loads(json_report(report))

    assert content["verdict"] == "pass"
    assert content["known_failing"] == [{"clause": "5.4 feedback/keys", "scenario": "", "detail": "b (known: later)"}]
