import numpy as np
from plugrl_server.algorithm.concurrent.learner import load_whole_state, whole_state
from toy_learner import ToyLearner, frames


def test_a_whole_state_makes_another_learner_the_same():
    first, second = ToyLearner(seed=1), ToyLearner(seed=2)
    first.add(**frames([1, 2, 3]))
    first.update(4)
    load_whole_state(second, whole_state(first))
    for learner in (first, second):
        learner.update(3)
    assert float(first.total) == float(second.total) > 0
    assert second.updates == 7
    np.testing.assert_array_equal(first.policy.weights, second.policy.weights)
