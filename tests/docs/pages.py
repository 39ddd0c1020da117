"""Reads the repository's Markdown: pages, headings, links and the shell commands in fenced blocks."""

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELL = {"bash", "sh", "shell", "console"}
FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*([\w-]*)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#{1,6}) (.+)$")
SEPARATORS = {"&&", "||", "|", ";", "&"}


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line its body starts on, and the body."""

    language: str
    line: int
    body: str


@dataclasses.dataclass(frozen=True)
class Command:
    """One simple command of a page, as the shell would hand it over."""

    page: Path
    line: int
    argv: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} {shlex.join(self.argv)[:60]}"


def site_pages() -> list[Path]:
    """Every page of the documentation site, Chinese ones included."""
    return sorted((ROOT / "docs").rglob("*.md"))


def all_pages() -> list[Path]:
    """The site's pages, the root's pages and the READMEs of packages and examples."""
    readmes = [*ROOT.glob("*/README.md"), *ROOT.glob("examples/*/README.md")]
    return [*sorted(ROOT.glob("*.md")), *sorted(readmes), *site_pages()]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    fence, language, start, body = None, "", 0, []
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence is None and match:
            fence, language, start, body = match[2], match[3], number + 1, []
        elif fence is not None and line.strip() == fence:
            yield Block(language, start, "\n".join(body))
            fence = None
        elif fence is not None:
            body.append(line)


def prose(text: str) -> list[str]:
    """A page's lines without its fenced blocks."""
    inside, lines = False, []
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            lines.append(line)
    return lines


def headings(text: str) -> list[str]:
    """The marks of a page's headings, in order: `["#", "##", ...]`."""
    return [match[1] for line in prose(text) if (match := HEADING.match(line))]


def links(text: str) -> list[str]:
    """The targets of a page's links."""
    return [target for line in prose(text) for target in LINK.findall(line)]


def commands(page: Path) -> Iterator[Command]:
    """Every simple command in the page's shell blocks; continued lines are joined, comments dropped."""
    for block in blocks(page.read_text()):
        if block.language in SHELL:
            for offset, line in _joined(block.body):
                for argv in _simple(line):
                    yield Command(page, block.line + offset, argv)


def _joined(body: str) -> Iterator[tuple[int, str]]:
    start, parts = 0, []
    for offset, line in enumerate(body.splitlines()):
        start = start if parts else offset
        parts.append(line.rstrip("\\").removeprefix("$ "))
        if not line.endswith("\\"):
            yield start, " ".join(parts)
            parts = []


def _simple(line: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    argv: list[str] = []
    for token in lexer:
        if token in SEPARATORS:
            yield tuple(argv)
            argv = []
        else:
            argv.append(token)
    if argv:
        yield tuple(argv)
