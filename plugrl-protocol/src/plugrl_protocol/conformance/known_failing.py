"""The file of --known-failing: clauses that a peer is known to break, each with the reason."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from plugrl_protocol.conformance.clauses import CLAUSES
from plugrl_protocol.conformance.report import Report


class KnownFailingError(Exception):
    """The file cannot be used; the text says why and where."""


@dataclass(frozen=True)
class Entry:
    """One line of the file: a glob over clause ids, and why they fail."""

    glob: str
    reason: str

    def matches(self, clause: str) -> bool:
        """Whether the entry is about a clause."""
        return fnmatchcase(clause, self.glob)


class KnownFailing:
    """The entries of a file; without any it excuses nothing."""

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self._entries = entries

    @classmethod
    def read(cls, path: Path) -> "KnownFailing":
        """Read lines of `GLOB: REASON`; lines that are empty or begin with # mean nothing.

        Raises:
            KnownFailingError: There is no such file, a line is no entry, or its glob matches no clause.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise KnownFailingError(f"{path}: {error}") from None
        entries = []
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                entries.append(_entry(line, f"{path}:{number}"))
        return cls(tuple(entries))

    def reason(self, clause: str) -> str | None:
        """Why a clause is known to fail; None: it is not."""
        return next((entry.reason for entry in self._entries if entry.matches(clause)), None)

    def judge(self, report: Report) -> None:
        """Add a violation for each entry whose clauses were checked and all held: the entry is to be removed."""
        broken = {finding.clause for finding in report.known}
        for entry in self._entries:
            checked = [clause for clause in report.exercised() if entry.matches(clause)]
            if checked and not broken & set(checked):
                report.unexpected(checked[0], f"known to fail ({entry.reason}), and passes: remove {entry.glob!r}")
            elif not checked:
                report.remarks.append(f"known to fail, but not exercised: {entry.glob}")


def _entry(line: str, where: str) -> Entry:
    glob, _, reason = (part.strip() for part in line.partition(":"))
    if not glob or not reason:
        raise KnownFailingError(f"{where}: expected GLOB: REASON, got {line.strip()!r}")
    entry = Entry(glob, reason)
    if not any(entry.matches(clause.id) for clause in CLAUSES):
        raise KnownFailingError(f"{where}: {glob!r} matches no clause, such as '4.2 exchange/alternation'")
    return entry
