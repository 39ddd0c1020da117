"""declare-spaces: the first client sizes the policy, the others agree or go (SPEC 10.2)."""

import numpy as np
from plugrl_server.assembly import CannotServe


def box(width=3):
    bound = np.ones(width, np.float32)
    return {
        "action": {"kind": "box", "shape": [width], "dtype": "<f4", "low": -bound, "high": bound},
        "env": "Pendulum-v1",
    }


def test_the_trainer_is_built_in_a_worker_before_the_first_infer_is_answered(simulate, fakes):
    seen = []

    def make(declaration, observation):
        seen.append((declaration.action.shape, declaration.env, len(observation)))
        return fakes.algorithm()

    run = simulate(fakes.source(make=make))
    assert run.scheduler.readiness == (True, "waiting-for-client")
    client = run.client()
    client.say(client.infer((0, 1), spaces=box()))
    assert run.scheduler.readiness == (False, "building")
    assert seen == []
    run.runtime.settle()
    assert seen == [((3,), "Pendulum-v1", 2)]
    assert run.scheduler.readiness == (True, "ready")
    assert len(client.actions) == 1


def test_first_infers_of_others_wait_for_the_build(simulate, fakes):
    compared = []

    def compare(declaration, observation):
        compared.append(declaration.env)

    run = simulate(fakes.source(make=lambda declaration, observation: fakes.algorithm(), disagreement=compare))
    one, two = run.client(), run.client()
    one.say(one.infer(spaces=box()))
    two.say(two.infer(spaces=box() | {"env": "Other-v0"}))
    run.runtime.run_soon()
    assert [lane for lane, _, _ in run.runtime.jobs] == ["learn"]
    run.runtime.settle()
    assert compared == ["Pendulum-v1", "Other-v0"]
    assert len(one.actions) == len(two.actions) == 1
    assert run.algorithm.batches == [2]


def test_a_client_that_cannot_be_served_is_told_why_and_the_server_waits_on(simulate, fakes):
    def make(declaration, observation):
        if declaration is None:
            raise CannotServe("this client declares no spaces; start the server with --policy.action-dim")
        return fakes.algorithm()

    run = simulate(fakes.source(make=make))
    plain, declaring = run.client(), run.client()
    plain.say(plain.infer())
    declaring.say(declaring.infer(spaces=box()))
    run.runtime.settle()
    assert plain.closed == (
        "1008 plugrl-server-reject: this client declares no spaces; start the server with --policy.action-dim"
    )
    assert len(declaring.actions) == 1


def test_a_later_client_that_disagrees_is_rejected_with_both_sides(simulate, fakes):
    def compare(declaration, observation):
        width = declaration.action.shape[0]
        return None if width == 6 else f"action_dim {width}, this run has 6"

    run = simulate(fakes.source(fakes.algorithm(), disagreement=compare))
    good, bad = run.client(), run.client()
    bad.say(bad.infer(spaces=box(3)))
    good.say(good.infer(spaces=box(6)))
    run.runtime.settle()
    assert bad.closed == "1008 plugrl-server-reject: action_dim 3, this run has 6"
    assert good.closed is None


def test_a_client_that_leaves_during_the_build_leaves_a_trainer_behind(simulate, fakes):
    run = simulate(fakes.source(make=lambda declaration, observation: fakes.algorithm()))
    client = run.client()
    client.say(client.infer(spaces=box()))
    client.leave()
    run.runtime.settle()
    assert run.scheduler.readiness == (True, "ready")
    assert client.actions == []


def test_a_build_that_fails_ends_the_run(simulate, fakes):
    def make(declaration, observation):
        raise RuntimeError("out of memory")

    run = simulate(fakes.source(make=make))
    client = run.client()
    client.say(client.infer(spaces=box()))
    run.runtime.settle()
    assert run.scheduler.ending.error == "RuntimeError: out of memory"
    assert str(run.scheduler.ending.close) == "1011 Internal server error."


def test_only_the_first_infer_of_a_connection_is_compared(simulate, fakes):
    compared = []
    run = simulate(fakes.source(fakes.algorithm(), disagreement=lambda *both: compared.append(both)))
    client = run.client()
    for _ in range(3):
        run.exchange(client)
    assert len(compared) == 1


def test_actions_are_values_of_the_declared_space(simulate, fakes):
    """SPEC 10.2: the declared dtype, within bounds, Discrete's start added."""
    discrete = {"action": {"kind": "discrete", "n": 9, "start": 5}}
    choose = {"infer": lambda obs: (np.full((1, 2), 3), {"ticket": np.zeros((1, 1))})}
    run = simulate(fakes.source(fakes.algorithm(**choose)))
    client = run.client()
    client.say(client.infer(spaces=discrete))
    run.runtime.settle()
    action = client.actions[0]["action"]
    assert (action.dtype, action.shape, action.tolist()) == (np.int64, (2, 1), [[8], [8]])


def test_a_client_that_declares_nothing_gets_the_runs_space(simulate, fakes):
    from plugrl_protocol.spaces import DiscreteSpace

    policy = fakes.policy(action_space=DiscreteSpace(4, start=1))
    choose = {"infer": lambda obs: (np.full((1, 2), 3), {"ticket": np.zeros((1, 1))})}
    run = simulate(fakes.algorithm(policy=policy, **choose))
    client = run.client()
    client.say(client.infer())
    run.runtime.settle()
    assert client.actions[0]["action"].tolist() == [[4], [4]]
