"""What a checker found out: a line a clause, and a verdict (SPEC 8)."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from plugrl_protocol.conformance.clauses import BY_ID, CLAUSES, Level, Side, numeric

_INDENT = " " * 8


class ViolationError(Exception):
    """The peer broke a clause: the scenario is over.

    Attributes:
        clause: The clause's id.
        detail: What was expected, and what came.
    """

    def __init__(self, clause: str, detail: str) -> None:
        super().__init__(f"{clause}: {detail}")
        self.clause = clause
        self.detail = detail


@dataclass
class Finding:
    """A violation or a note.

    Attributes:
        clause: The clause's id.
        scenario: The scenario or phase in which it was found first.
        detail: What was expected, and what came.
        evidence: Further lines: the last frames, the output of a process.
        times: How often it was found.
    """

    clause: str
    scenario: str
    detail: str
    evidence: list[str] = field(default_factory=list)
    times: int = 1


class Report:
    """Collects findings on one end.

    Args:
        program: The checker's name.
        graded: The end that is graded.
        excuse: The reason for which a clause is known to fail, or None.

    Attributes:
        scenario: What is running now.
        exchanges: How many exchanges were completed.
        violations: What must not be, in the order found.
        notes: Portability risks, in the order found.
        known: Violations that were expected.
        remarks: Sentences about the run as a whole.
        incomplete: Why the peer could not be graded to the end, or None.
    """

    def __init__(self, program: str, graded: Side, excuse: Callable[[str], str | None] = lambda _: None) -> None:
        self.program = program
        self.graded = graded
        self.scenario = ""
        self.exchanges = 0
        self.violations: list[Finding] = []
        self.notes: list[Finding] = []
        self.known: list[Finding] = []
        self.remarks: list[str] = []
        self.incomplete: str | None = None
        self._scenarios: list[str] = []
        self._excuse = excuse
        self._passed: Counter[str] = Counter()

    def begin(self, scenario: str) -> None:
        """Go on to a scenario or phase."""
        self.scenario = scenario
        self._scenarios.append(scenario)

    def passed(self, *clauses: str) -> None:
        """Count one check of each clause that it has passed.

        Raises:
            KeyError: There is no such clause.
        """
        for clause in clauses:
            self._passed[BY_ID[clause].id] += 1

    def note(self, clause: str, detail: str) -> None:
        """Note something that is accepted, and unlike what the Python peers do. The same note is kept once."""
        for seen in self.notes:
            if (seen.clause, seen.detail) == (clause, detail):
                seen.times += 1
                return
        self.notes.append(Finding(clause, self.scenario, detail))

    def violation(self, clause: str, detail: str, evidence: Iterable[str] = ()) -> None:
        """Note a violation; a broken SHOULD is a note."""
        if clause in BY_ID and BY_ID[clause].level is Level.SHOULD:
            self.note(clause, detail)
            return
        reason = self._excuse(clause)
        finding = Finding(clause, self.scenario, detail, list(evidence))
        if reason is None:
            self.violations.append(finding)
        else:
            finding.detail += f" (known: {reason})"
            self.known.append(finding)

    def unexpected(self, clause: str, detail: str) -> None:
        """Note that a clause that is known to fail has held."""
        self.violations.append(Finding(clause, "known failing", detail))

    @property
    def clean(self) -> bool:
        """Whether there is no violation."""
        return not self.violations

    @property
    def verdict(self) -> str:
        """`pass`, `fail`, or `incomplete` where there is no violation, and more to check."""
        if not self.clean:
            return "fail"
        return "pass" if self.incomplete is None else "incomplete"

    def has_passed(self, clause: str) -> bool:
        """Whether a clause was checked and held every time."""
        return self._passed[clause] > 0 and not any(bad.clause == clause for bad in (*self.violations, *self.known))

    def exercised(self) -> list[str]:
        """The clauses that were checked, in numeric order."""
        found = {finding.clause for finding in (*self.violations, *self.known, *self.notes)}
        found |= {clause for clause, times in self._passed.items() if times}
        order = {clause.id: place for place, clause in enumerate(CLAUSES)}
        return sorted(found, key=lambda clause: (numeric(clause), order.get(clause, 0), clause))

    def not_exercised(self) -> list[str]:
        """The clauses that bind this end and were not checked, in numeric order."""
        seen = set(self.exercised())
        return [clause.id for clause in CLAUSES if clause.side.binds(self.graded) and clause.id not in seen]

    def text(self) -> str:
        """The report for people."""
        lines = [f"{self.program}: {', '.join(self._scenarios) or 'nothing was run'}"]
        for clause in self.exercised():
            lines += self._clause_lines(clause)
        lines += ["", *self._missing_lines()]
        lines += ["", *self.remarks] if self.remarks else [""]
        return "\n".join([*lines, self._verdict_line()])

    def _missing_lines(self) -> list[str]:
        if not self._passed:
            return ["not exercised: everything else"]
        missing = self.not_exercised()
        return (
            ["not exercised:", *(f"{_INDENT}{clause}{self._why_not(clause)}" for clause in missing)] if missing else []
        )

    def _clause_lines(self, clause: str) -> list[str]:
        failed = [finding for finding in (*self.violations, *self.known) if finding.clause == clause]
        noted = [finding for finding in self.notes if finding.clause == clause]
        word = "FAIL" if failed else "note" if noted else "ok"
        counts = [
            f"{times} {what}"
            for times, what in (
                (self._passed[clause], "ok"),
                (sum(finding.times for finding in noted), "noted"),
                (len(failed), "failed"),
            )
            if times
        ]
        lines = [f"  {word:<4}  {clause}  {', '.join(counts)}"]
        lines += [f"{_INDENT}{finding.scenario}: {finding.detail}" for finding in (*failed, *noted)]
        if failed:  # what surrounds the first one is enough
            lines += [f"{_INDENT}  {line}" for line in failed[0].evidence]
        return lines

    def _why_not(self, clause: str) -> str:
        if BY_ID[clause].checked_on(self.graded):
            return ""
        return "  (the vectors check it)" if BY_ID[clause].checks else "  (nothing can check it from outside)"

    def _verdict_line(self) -> str:
        counts = [(len(self.violations), "violation"), (len(self.notes), "note"), (self.exchanges, "exchange")]
        if self.known:
            counts.insert(1, (len(self.known), "known violation"))
        told = ", ".join(f"{number} {what}{'' if number == 1 else 's'}" for number, what in counts)
        return f"verdict: {self.verdict.upper()}, {told}"
