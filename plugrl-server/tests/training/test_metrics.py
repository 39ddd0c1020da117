import json
import math

import numpy as np
import pytest
from plugrl_server.training.metrics import MetricsFile, as_number, read_rows


@pytest.fixture
def file(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_one_object_per_step_readable_before_the_file_is_closed(file):
    log = MetricsFile(file, clock=lambda: 12.5)
    log.log(3, {"rollout/reward": np.float32(1.5), "losses/policy_loss": 0.25})
    assert json.loads(file.read_text()) == {
        "step": 3,
        "time": 12.5,
        "rollout/reward": 1.5,
        "losses/policy_loss": 0.25,
    }
    log.close()


def test_a_number_that_json_lacks_is_null(file):
    log = MetricsFile(file)
    log.log(1, {"a/nan": math.nan, "a/inf": -math.inf, "a/word": "x"})
    log.close()
    (row,) = read_rows(file)
    assert row["a/nan"] is row["a/inf"] is row["a/word"] is None


def test_resume_drops_the_rows_after_the_checkpoint_and_a_torn_line(file):
    """Lesson 21: a killed run goes on without a gap or a double row."""
    file.write_text('{"step": 1, "time": 1}\n{"step": 2, "time": 2}\n{"step": 3, "time": 3}\n{"step": 4, "ti')
    log = MetricsFile(file, last_step=2)
    log.log(3, {})
    log.close()
    assert [row["step"] for row in read_rows(file)] == [1, 2, 3]
    assert len(file.read_text().splitlines()) == 3


def test_a_resumed_run_that_never_learned_starts_a_file(file):
    MetricsFile(file, last_step=0).close()
    assert list(read_rows(file)) == []


def test_a_missing_file_has_no_rows(file):
    assert list(read_rows(file)) == []


def test_as_number():
    assert [as_number(x) for x in (1, "2", None, math.inf, [])] == [1.0, 2.0, None, None, None]
