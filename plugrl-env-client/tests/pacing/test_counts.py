"""What a summary says of a paced run."""

from plugrl_env_client.pacing.ages import Ages
from plugrl_env_client.pacing.counts import PacingCounts, all_paced


def counted(ages=(), **counts):
    made = PacingCounts(**counts)
    for age in ages:
        made.ages.add(age)
    return made


def test_the_summary_in_words_and_as_json():
    counts = counted(
        [0.1] * 99 + [2.0], steps=100, late_steps=3, missed_slots=7, answers=10, late_answers=2, fill_ins=5
    )
    said = str(counts)
    assert said.startswith("3 of 100 steps late (7 slots missed); 2 of 10 answers late (5 fill-in steps, 0 stops); ")
    assert said.endswith("p95 0.101 s, max 2.000 s")
    told = counts.as_json()
    assert told.pop("observation_age")["max"] == 2.0
    assert told == {
        "steps": 100,
        "late_steps": 3,
        "missed_slots": 7,
        "answers": 10,
        "late_answers": 2,
        "fill_ins": 5,
        "stops": 0,
        "warm_up": 0.0,
    }


def test_nothing_is_said_of_ages_that_nobody_measured():
    assert "age" not in str(PacingCounts())
    assert PacingCounts().as_json()["observation_age"] == {"p50": None, "p95": None, "max": None}


def test_groups_together():
    both = all_paced([counted([0.1], steps=2, warm_up=1.0), None, counted([0.3], steps=3, stops=1, warm_up=0.5)])
    assert both == PacingCounts(steps=5, stops=1, warm_up=1.0, ages=both.ages)
    assert both.ages == Ages.together([counted([0.1]).ages, counted([0.3]).ages])
    assert all_paced([None, None]) is None
    assert all_paced([]) is None


def test_a_copy_does_not_change_any_more():
    counts = counted([0.1], steps=1)
    copy = counts.copy()
    counts.steps += 1
    counts.ages.add(5.0)
    assert (copy.steps, copy.ages.longest) == (1, 0.1)
