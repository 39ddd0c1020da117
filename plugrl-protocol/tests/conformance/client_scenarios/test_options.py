"""Options of the client checker that cannot be."""

import numpy as np
import pytest
from plugrl_protocol.conformance.client_scenarios.options import scenario_names

PROBE = {"scenarios": ("basic",)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"features": frozenset({"teleport"})}, "--features teleport: expected reuse-feedback-obs, declare-spaces"),
        ({**PROBE, "action_dim": 11}, "--action-dim 11: expected 1 to 10 with --probe"),
        ({**PROBE, "action_dim": 0}, "--action-dim 0: expected 1 to 10 with --probe"),
        ({**PROBE, "action_dtype": np.dtype(np.float16)}, "--action-dtype float16: expected one of float32, float64"),
    ],
)
def test_what_cannot_be_is_named(client_options, changes, told):
    with pytest.raises(ValueError, match="--") as raised:
        client_options(**changes)
    assert told in str(raised.value)


def test_watch_mode_takes_any_action(client_options):
    assert client_options(action_dim=0, action_dtype=np.dtype(np.int8)).action_dim == 0
    assert client_options(action_dim=100).action_dim == 100


def test_the_scenarios_that_are_asked_for():
    none, declare = frozenset(), frozenset({"declare-spaces"})

    assert scenario_names(False, None, none) == ("watch",)
    assert scenario_names(True, None, none) == ("basic",)
    assert scenario_names(True, "resync", none) == ("resync",)
    assert scenario_names(True, "all", none) == ("basic", "resync", "text")
    assert scenario_names(True, "all", declare) == ("basic", "resync", "text", "reject")
    with pytest.raises(ValueError, match="--scenario needs --probe"):
        scenario_names(False, "basic", none)
