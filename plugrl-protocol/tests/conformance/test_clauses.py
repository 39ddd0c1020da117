"""The list of clauses agrees with itself and with the core."""

import ast
import re
from pathlib import Path

import plugrl_protocol.errors
import pytest
from plugrl_protocol.conformance.clauses import BY_ID, CLAUSES, Check, Side, numeric

CORE = Path(plugrl_protocol.errors.__file__).parent
ID = re.compile(r"\d+(\.\d+)? [a-z]+/[a-z0-9_-]+")
SPACES = {"10.2 spaces/num_envs", "10.2 spaces/max_episode_steps", "10.2 spaces/client"}


def raised_by_the_core() -> set[str]:
    """Clause ids in string literals of the core; the checkers and docstrings aside."""
    found = set()
    for path in CORE.rglob("*.py"):
        if "conformance" not in path.parts:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            found |= {text for text in texts if ID.fullmatch(text)}
    return found


def test_the_core_cites_only_clauses_of_the_list():
    cited = raised_by_the_core()

    assert len(cited) > 30
    assert cited <= BY_ID.keys()
    assert BY_ID.keys() >= SPACES  # their ids are put together


def test_every_clause_that_a_vector_checks_is_cited_by_the_core():
    assert {clause.id for clause in CLAUSES if Check.VECTOR in clause.checks} <= raised_by_the_core() | SPACES


def test_ids_are_unique_well_formed_and_in_numeric_order():
    ids = [clause.id for clause in CLAUSES]

    assert len(set(ids)) == len(ids)
    assert all(ID.fullmatch(each) for each in ids)
    assert [numeric(each) for each in ids] == sorted(numeric(each) for each in ids)


def test_numeric_order_is_not_alphabetic():
    assert numeric("4.9 a/b") < numeric("4.10 a/b") < numeric("10 a/b")
    assert numeric("4 a/b") < numeric("4.1 a/b")
    assert numeric("x a/b") == (0,)


def test_what_checks_a_clause_fits_who_keeps_it():
    for clause in CLAUSES:
        graded = {check.grades for check in clause.checks} - {None}
        assert all(clause.side.binds(side) for side in graded), clause.id
        if clause.side is Side.BOTH and graded:
            assert graded == {Side.CLIENT, Side.SERVER}, clause.id


@pytest.mark.parametrize("side", [Side.CLIENT, Side.SERVER])
def test_both_binds_each_end(side):
    assert Side.BOTH.binds(side)
    assert side.binds(side)
    assert not side.binds(Side.SERVER if side is Side.CLIENT else Side.CLIENT)
