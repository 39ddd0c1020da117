"""`none` on the command line."""

import dataclasses
from typing import Literal

import pytest
import tyro
from plugrl_server.common.none_word import reading_none


@dataclasses.dataclass
class Flags:
    steps: int | None = 7
    name: str | None = "x"
    kind: Literal["a", "b"] | None = "a"
    sizes: tuple[int, ...] | None = (1,)
    seed: int = 3
    title: str = "y"


def parsed(*words):
    with reading_none():
        return tyro.cli(Flags, args=words)


@pytest.mark.parametrize("word", ["none", "None", "NONE", "nOnE"])
@pytest.mark.parametrize("flag", ["steps", "name", "kind", "sizes"])
def test_none_in_any_case_is_none_where_a_field_may_be(flag, word):
    assert getattr(parsed(f"--{flag}", word), flag) is None


def test_other_values_are_read_as_ever():
    read = parsed("--steps", "5", "--name", "nonesuch", "--kind", "b", "--sizes", "2", "3", "--title", "none")
    assert read == Flags(steps=5, name="nonesuch", kind="b", sizes=(2, 3), title="none")


@pytest.mark.parametrize("words", [("--seed", "none"), ("--steps", "nil"), ("--kind", "c"), ("--sizes", "none", "1")])
def test_a_field_that_cannot_be_none_and_words_that_are_not_it_are_refused(words, capsys):
    with pytest.raises(SystemExit) as left:
        parsed(*words)
    assert left.value.code == 2
    assert words[1] in capsys.readouterr().err


def test_help_writes_none_as_the_docs_do(capsys):
    with pytest.raises(SystemExit), reading_none():
        tyro.cli(Flags, args=["--help"], default=Flags(steps=None))
    help_text = capsys.readouterr().out
    assert "none|INT" in help_text
    assert "(default: none)" in help_text
