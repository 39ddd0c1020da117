"""The file of --known-failing."""

import pytest
from plugrl_protocol.conformance.clauses import Side
from plugrl_protocol.conformance.known_failing import KnownFailing, KnownFailingError
from plugrl_protocol.conformance.report import Report


@pytest.fixture
def read(tmp_path):
    def write(text: str) -> KnownFailing:
        path = tmp_path / "known.txt"
        path.write_text(text, encoding="utf-8")
        return KnownFailing.read(path)

    return write


def report_with(known: KnownFailing) -> Report:
    report = Report("checker", Side.CLIENT, known.reason)
    report.begin("watch")
    return report


def test_a_glob_excuses_its_clauses(read):
    known = read(
        "# of our robot\n\n5.4 feedback/*: it resets in its step\n 7.1 closing/exit-status :  ticket 3: later\n"
    )

    assert known.reason("5.4 feedback/keys") == "it resets in its step"
    assert known.reason("7.1 closing/exit-status") == "ticket 3: later"
    assert known.reason("7.1 closing/stop") is None


def test_an_entry_that_passes_is_a_violation(read):
    known = read("5.4 feedback/reward-sum: ticket 12\n")
    report = report_with(known)
    report.passed("5.4 feedback/reward-sum")
    known.judge(report)

    assert [(one.clause, one.detail) for one in report.violations] == [
        ("5.4 feedback/reward-sum", "known to fail (ticket 12), and passes: remove '5.4 feedback/reward-sum'")
    ]


def test_an_entry_of_which_one_clause_fails_is_right(read):
    known = read("5.4 feedback/*: ticket 12\n")
    report = report_with(known)
    report.passed("5.4 feedback/keys")
    report.violation("5.4 feedback/reward-sum", "expected 3, got 1")
    known.judge(report)

    assert report.clean


def test_an_entry_that_was_not_exercised_is_a_remark(read):
    known = read("10.1 *: no reuse yet\n")
    report = report_with(known)
    known.judge(report)

    assert report.clean
    assert report.remarks == ["known to fail, but not exercised: 10.1 *"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5.4 feedback/keys\n", "known.txt:1: expected GLOB: REASON, got '5.4 feedback/keys'"),
        ("5.4 feedback/keys:  \n", "expected GLOB: REASON"),
        ("\n: why\n", "known.txt:2: expected GLOB: REASON"),
        ("5.5 *: why\n", "'5.5 *' matches no clause, such as '4.2 exchange/alternation'"),
    ],
)
def test_what_is_no_entry_is_named_with_its_line(read, text, told):
    with pytest.raises(KnownFailingError, match=r"known\.txt") as raised:
        read(text)
    assert told in str(raised.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(KnownFailingError, match=r"missing\.txt"):
        KnownFailing.read(tmp_path / "missing.txt")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(KnownFailingError, match="bytes"):
        KnownFailing.read(tmp_path / "bytes")
