"""What one message shows by itself."""

import numpy as np
import pytest
from plugrl_protocol.conformance.client_scenarios.grading import StepIds, grade_feedback, grade_infer
from plugrl_protocol.conformance.report import ViolationError
from plugrl_protocol.messages import Feedback, Infer
from plugrl_protocol.spaces import Declaration, DiscreteSpace


def grade(report, message, change=lambda wire: None):
    wire = message.to_wire()
    change(wire)
    read, judge = (Infer, grade_infer) if isinstance(message, Infer) else (Feedback, grade_feedback)
    judge(report, wire, read.from_wire(wire))


def noted(report) -> list[str]:
    return [note.clause for note in report.notes]


def test_usual_messages_earn_no_note(report, infer, feedback):
    grade(report, infer([0, 1]))
    grade(report, feedback([0, 1], info={"episode": {"r": np.zeros(2)}}))

    assert noted(report) == []
    assert {"4.4 indices/unique", "5.2 infer/shape", "5.4 feedback/flags", "5.4 feedback/episode"} <= set(
        report.exercised()
    )


def test_features_are_counted_where_they_are_used(report, infer):
    grade(report, infer([0]))
    assert not [clause for clause in report.exercised() if clause.startswith("10")]

    used = {"reuse": np.array([False]), "spaces": Declaration(DiscreteSpace(2), env="CartPole-v1")}
    grade(report, infer([0], **used))
    assert [clause for clause in report.exercised() if clause.startswith("10")] == [
        "10.1 reuse/shape",
        "10.1 reuse/unoffered",
        "10.1 reuse/held",
        "10.2 spaces/action",
        "10.2 spaces/env",
    ]


def test_text_as_a_list_is_one_note_for_infer_and_feedback(report, infer, feedback):
    grade(report, infer([0]), lambda wire: wire["data"].update(text=["a"]))
    grade(report, feedback([0]), lambda wire: wire["data"]["obs"].update(text=["a"]))

    assert noted(report) == ["3.4 observation/text"]
    assert report.notes[0].times == 2


def test_unusual_widths_are_notes(report, infer, feedback):
    def narrow(wire):
        wire["env_indices"] = wire["env_indices"].astype(np.uint16)
        observation = wire["data"].get("obs", wire["data"])
        observation["states"] = {"qpos": observation["states"]["qpos"].astype(np.float32)}
        if "rewards" in wire["data"]:
            wire["data"]["rewards"] = wire["data"]["rewards"].astype(np.float64)

    grade(report, infer([0]), narrow)
    grade(report, feedback([0]), narrow)

    assert sorted(noted(report)) == ["4.4 indices/width", "5.2 observation/float64", "5.4 feedback/rewards-float32"]
    assert "env_indices: uint16; the Python client sends int64" in [note.detail for note in report.notes]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_violations(report, infer, feedback, value):
    def spoil(wire):
        observation = wire["data"].get("obs", wire["data"])
        observation["states"]["qpos"][1, 1] = value

    with pytest.raises(ViolationError, match=r"infer\.data\.states\.qpos.*row 1 \(env 7\)") as raised:
        grade(report, infer([3, 7]), spoil)
    assert raised.value.clause == "5.2 observation/finite"
    with pytest.raises(ViolationError, match=r"feedback\.data\.obs\.states\.qpos") as raised:
        grade(report, feedback([3, 7]), spoil)
    assert raised.value.clause == "5.4 feedback/finite"
    with pytest.raises(ViolationError, match=r"rewards: env 7") as raised:
        grade(report, feedback([3, 7]), lambda wire: wire["data"].update(rewards=np.array([0, value], np.float32)))
    assert raised.value.clause == "5.4 feedback/finite"


def test_step_ids_count_the_chunks_of_an_episode(report, infer, feedback):
    ids = StepIds()
    ids.check(report, infer([0, 1]), "infer")
    ids.completed(feedback([0, 1], terminated=np.array([True, False])))
    ids.check(report, infer([0, 1], step_ids=np.array([0, 1])), "infer")
    assert noted(report) == []

    ids.check(report, infer([0, 1], step_ids=np.array([1, 1])), "infer")
    assert noted(report) == ["5.2 infer/step-ids"]
    assert "env 0, expected 0, got 1" in report.notes[0].detail
