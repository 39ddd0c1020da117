"""What a policy hands out besides actions."""

import numpy as np
from plugrl_server.policy.state import PolicyRuntimeState, PolicyStepState, PolicyTrainState


def test_the_names_of_the_contract_exist():
    assert PolicyRuntimeState is not None
    assert PolicyTrainState is not None


def test_a_step_state_holds_what_is_kept_while_a_chunk_runs():
    state = PolicyStepState(obs={"states": {}}, runtime_state={"sample": np.zeros((1, 2))}, train_state=None, version=3)
    assert (state.version, state.train_state) == (3, None)
