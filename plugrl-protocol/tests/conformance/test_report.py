"""The report: format, order, severities and verdict of wire 8."""

import pytest
from plugrl_protocol.conformance.clauses import CLAUSES, Side
from plugrl_protocol.conformance.report import Report, ViolationError


@pytest.fixture
def report() -> Report:
    made = Report("plugrl-conformance", Side.CLIENT)
    made.begin("watch")
    return made


def lines_of(report: Report) -> list[str]:
    return report.text().splitlines()


def test_a_line_a_clause_in_numeric_order(report):
    report.passed("10.1 reuse/held", "4.2 exchange/alternation")
    report.passed("4.2 exchange/alternation")
    report.violation("5.4 feedback/reward-sum", "expected 3, got 1")
    report.note("3.4 observation/text", "text is a list")

    assert lines_of(report)[:7] == [
        "plugrl-conformance: watch",
        "  note  3.4 observation/text  1 noted",
        "        watch: text is a list",
        "  ok    4.2 exchange/alternation  2 ok",
        "  FAIL  5.4 feedback/reward-sum  1 failed",
        "        watch: expected 3, got 1",
        "  ok    10.1 reuse/held  1 ok",
    ]


def test_the_clauses_that_were_not_exercised_come_after_and_then_the_verdict(report):
    report.passed("4.2 exchange/alternation")
    report.exchanges = 1
    lines = lines_of(report)
    listed = [line.strip() for line in lines[lines.index("not exercised:") + 1 : lines.index("", 3)]]

    assert lines[-1] == "verdict: PASS, 0 violations, 0 notes, 1 exchange"
    assert [line.partition("  ")[0] for line in listed] == report.not_exercised()
    assert "5.1 metadata/any-key  (nothing can check it from outside)" in listed
    assert "3 codec/encode  (the vectors check it)" in listed
    assert "5.1 metadata/wait" in listed
    assert set(report.not_exercised()) == {
        clause.id for clause in CLAUSES if clause.side is not Side.SERVER and clause.id != "4.2 exchange/alternation"
    }


def test_where_nothing_passed_the_rest_is_not_listed(report):
    report.violation("4.2 exchange/progress", "no client has connected")

    assert "not exercised: everything else" in lines_of(report)


def test_the_same_note_is_kept_once(report):
    for _ in range(3):
        report.note("3.4 observation/text", "text is a list")
    report.note("3.4 observation/text", "something else")

    assert [(note.detail, note.times) for note in report.notes] == [("text is a list", 3), ("something else", 1)]
    assert "  note  3.4 observation/text  4 noted" in lines_of(report)


def test_violations_stand_in_the_order_found_with_the_evidence_of_the_first(report):
    report.violation("5.4 feedback/keys", "first", ["a frame"])
    report.begin("resync")
    report.violation("5.4 feedback/keys", "second", ["another frame"])
    report.violation("1.1 framing/compression", "third")

    assert [(one.clause, one.scenario) for one in report.violations] == [
        ("5.4 feedback/keys", "watch"),
        ("5.4 feedback/keys", "resync"),
        ("1.1 framing/compression", "resync"),
    ]
    text = report.text()
    assert "a frame" in text
    assert "another frame" not in text
    assert text.splitlines()[-1] == "verdict: FAIL, 3 violations, 0 notes, 0 exchanges"


def test_a_broken_should_is_a_note(report):
    report.violation("7.5 closing/done", "left without a close frame")

    assert report.clean
    assert [note.clause for note in report.notes] == ["7.5 closing/done"]


def test_an_excused_violation_is_known_and_shows_its_reason():
    report = Report("checker", Side.CLIENT, lambda clause: "ticket 12" if clause.startswith("5.4") else None)
    report.violation("5.4 feedback/keys", "info is missing")

    assert report.verdict == "pass"
    assert report.known[0].detail == "info is missing (known: ticket 12)"
    assert "  FAIL  5.4 feedback/keys  1 failed" in lines_of(report)
    assert lines_of(report)[-1] == "verdict: PASS, 0 violations, 1 known violation, 0 notes, 0 exchanges"
    assert not report.has_passed("5.4 feedback/keys")


def test_a_run_that_could_not_be_ended_is_no_pass(report):
    report.incomplete = "the server is gone"
    assert report.verdict == "incomplete"

    report.violation("5.4 feedback/keys", "x")
    assert report.verdict == "fail"


def test_an_unknown_clause_may_be_broken_but_not_passed(report):
    report.violation("4.2 exchange/unheard-of", "a newer core")

    assert "4.2 exchange/unheard-of" in report.text()
    with pytest.raises(KeyError):
        report.passed("4.2 exchange/unheard-of")


def test_remarks_stand_above_the_verdict(report):
    report.remarks.append("not run: resync")

    assert lines_of(report)[-2] == "not run: resync"


def test_a_violation_says_its_clause_and_detail():
    error = ViolationError("5.4 feedback/keys", "info is missing")

    assert (error.clause, error.detail) == ("5.4 feedback/keys", "info is missing")
    assert str(error) == "5.4 feedback/keys: info is missing"
