"""SPEC.md, the list of clauses and the code say the same."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from plugrl_protocol.codec import decode
from plugrl_protocol.conformance.clauses import CLAUSES
from plugrl_protocol.messages import Feedback, message_from_wire

SPEC = Path(__file__).parents[1] / "SPEC.md"
TEXT = SPEC.read_text(encoding="utf-8")
RULE = re.compile(r"^- `([^`]+)` \*\*(MUST|SHOULD)\*\* \*(client|server|both)\*: ", re.MULTILINE)
FRAMES = re.compile(r"^`(\w+)`, (\d+) bytes:\n\n```text\n(.*?)```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def parts():
    spec = importlib.util.spec_from_file_location("spec_parts", SPEC.with_name("spec_parts.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frame_of(lines: str) -> bytes:
    return bytes.fromhex("".join(line[:50] for line in lines.splitlines()))


def test_every_clause_is_in_the_spec_once_with_its_level_and_side():
    stated = RULE.findall(TEXT)

    assert len(stated) == len(set(stated))
    assert sorted(stated) == sorted((clause.id, clause.level.value, clause.side.value) for clause in CLAUSES)


def test_a_clause_stands_in_the_section_that_its_id_names():
    section = ""
    for line in TEXT.splitlines():
        if heading := re.match(r"#+ ([\d.]+) ", line):
            section = heading[1]
        elif rule := RULE.match(line):
            assert rule[1].split()[0] == section


def test_the_spec_says_which_clauses_nothing_can_check():
    unchecked = TEXT.partition("### 8.3")[2].partition("## 9")[0]

    assert re.findall(r"`([^`]+)`", unchecked) == [clause.id for clause in CLAUSES if not clause.checks]


def test_every_rule_that_is_cited_exists():
    ids = {clause.id for clause in CLAUSES}

    assert set(re.findall(r"`(\d[\d.]* [a-z]+/[\w-]+)`", TEXT)) == ids


def test_the_generated_parts_are_fresh(parts):
    assert parts.fill(TEXT) == TEXT


def test_a_change_of_the_table_would_show(parts, monkeypatch):
    turn = next(iter(parts.RULES))
    monkeypatch.setattr(parts, "RULES", {turn: parts.RULES[turn]})

    assert parts.fill(TEXT) != TEXT


def test_the_frames_of_the_spec_are_messages_of_their_type():
    found = {name: (int(size), frame_of(lines)) for name, size, lines in FRAMES.findall(TEXT)}

    assert list(found) == ["metadata", "infer", "action", "feedback"]
    for name, (size, frame) in found.items():
        assert len(frame) == size
        assert type(message_from_wire(decode(frame))).__name__.lower() == name


def test_the_feedback_of_the_spec_says_what_the_text_beside_it_says():
    frame = frame_of({name: lines for name, _, lines in FRAMES.findall(TEXT)}["feedback"])
    feedback = message_from_wire(decode(frame))

    assert isinstance(feedback, Feedback)
    assert feedback.env_indices.tolist() == [3]
    assert feedback.rewards.tolist() == [2.0]
    assert (feedback.terminated.tolist(), feedback.truncated.tolist()) == ([True], [False])
    assert np.array_equal(feedback.observation.states["obs"], [[0.5]])
