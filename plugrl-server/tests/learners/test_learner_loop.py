"""Two learners in two processes, over gloo, get the weights of one; and how a learner ends."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from plugrl_protocol.observation import Observation
from plugrl_protocol.spaces import BoxSpace, Declaration
from plugrl_server import assembly
from plugrl_server.algorithm.base_algorithm import NO_NODE, FeedbackRows
from plugrl_server.algorithm.collectives import Collectives, LearnersLost, TorchCollectives
from plugrl_server.algorithm.distributed import Learn
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.assembly import Selection
from plugrl_server.learners import learner_loop
from plugrl_server.learners.team import Build, Team
from plugrl_server.policy.registration import list_policies

ENVS = 8
SECOND = """
import sys, torch.distributed as dist
from plugrl_server.algorithm.collectives import TorchCollectives
from plugrl_server.learners import learner_loop
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=1, world_size=2)
code = learner_loop.run(TorchCollectives(dist.new_group(backend="gloo")))
dist.destroy_process_group()  # as a learner of torchrun does: gloo's threads must not be left to the interpreter's end
sys.exit(code)
"""
SMALL = {"hidden_sizes": (16, 16), "device": "cpu"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Collectives of rank 0, which this process is, and the process of rank 1."""
    store = str(tmp_path_factory.mktemp("pair") / "store")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    process = subprocess.Popen([sys.executable, "-c", SECOND, store])
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=0, world_size=2)
    try:
        yield TorchCollectives(dist.new_group(backend="gloo")), process
    finally:
        process.kill()
        process.wait()
        dist.destroy_process_group()
        torch.set_num_threads(threads)


def selected(policy, algo, variant="default", policy_changes=None, **changes):
    """A selection, sized by an environment of 3 numbers and 2 actions."""
    sizes = {name: value for name, value in {**SMALL, **(policy_changes or {})}.items() if value is not None}
    policy_config = list_policies()[policy]["default"](**sizes)
    selection = Selection(policy, "default", policy_config, algo, variant, list_algos()[algo][variant](**changes))
    action = BoxSpace(low=np.full(2, -1, np.float32), high=np.full(2, 1, np.float32), shape=(2,), dtype="float32")
    declaration = Declaration(action=action, env="made-up", client=None)
    return assembly.with_declaration(selection, declaration, Observation(**observed(0)))


def observed(t):
    states = np.sin(np.arange(ENVS * 3, dtype=np.float32).reshape(ENVS, 3) + 0.7 * t)
    return {"images": {}, "states": {"state": states}, "text": np.full(ENVS, "")}


def frames(algorithm, t, nodes):
    """The feedback of ENVS environments after the t-th decision; an episode has five."""
    obs, done = observed(t), np.full(ENVS, t % 5 == 4)
    action, runtime_state = algorithm.infer(obs)
    return FeedbackRows(
        obs=obs,
        runtime_state=runtime_state,
        train_state=algorithm.derive_train_state(runtime_state),
        terminated=np.full(ENVS, t > 0 and t % 5 == 0),
        truncated=np.zeros(ENVS, bool),
        next_obs=observed(t + 1),
        reward=-np.square(action.reshape(ENVS, -1)[:, :2] - obs["states"]["state"][:, :2]).sum(1).astype(np.float32),
        info=[{"episode": {"r": 1.0, "l": 5}}] * ENVS,
        next_terminated=done,
        next_truncated=np.zeros(ENVS, bool),
        nodes=nodes,
    )


def trained(algorithm, learn_steps):
    """The metrics of each of some learn steps, between which frames come in as they do from a server."""
    told, nodes, t = [], [NO_NODE] * ENVS, 0
    while len(told) < learn_steps:
        rows = frames(algorithm, t, nodes)
        taken = algorithm.feedback_rows(rows)
        nodes, t = rows.nodes, t + 1
        assert taken
        if algorithm.should_learn():
            told.append(algorithm.learn()[1])
            algorithm.post_learn()
    return told


def parameters(algorithm):
    return {name: tensor.detach().clone() for name, tensor in algorithm.policy.state_dict().items()}


def compared(pair, selection, learn_steps=3, resumed=None):
    """Learn alone and in a pair, and compare everything a learner holds and reports; returns the pair's algorithm."""
    alone, shared = (assembly.build(selection, seed=3) for _ in range(2))
    before = parameters(alone)
    if resumed is not None:
        for algorithm in (alone, shared):
            algorithm.load_checkpoint(resumed)
    Team(pair[0]).build(selection, 3, shared)
    expected, told = trained(alone, learn_steps), trained(shared, learn_steps)
    now = parameters(shared)
    for name, tensor in parameters(alone).items():
        torch.testing.assert_close(now[name], tensor, rtol=0, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    assert any((now[name] - before[name]).abs().max() > 1e-3 for name in before), "nothing was learned"
    for ours, theirs in zip(told, expected, strict=True):
        compare_metrics(ours, theirs)
    return shared


def compare_metrics(ours, theirs):
    names = {name for name in theirs or {} if name.startswith("losses/")}
    assert {name for name in ours or {} if name.startswith("losses/")} == names
    for name in names:
        assert ours[name] == pytest.approx(theirs[name], rel=1e-3, abs=1e-5), name


PPO_SIZES = {"global_steps": 1000, "buffer_size": 72, "update_epochs": 3, "learning_rate": 3e-3}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 24},
        {"batch_size": 25, "ent_coef": 0.01},  # mini-batches of 25, 25 and 22
        {"batch_size": 71, "critic_learning_rate": 1e-3},  # mini-batches of 71 and 1: one learner has no row
        {"batch_size": 16, "target_kl": 1e-4},  # stops early, on all learners
        {"batch_size": 16, "desired_kl": 0.01, "anneal_learning_rate": False, "critic_warmup_iterations": 1},
    ],
    ids=["even", "ragged", "single", "early-stop", "adaptive"],
)
def test_ppo(pair, changes):
    compared(pair, selected("gaussian-policy", "ppo", **{**PPO_SIZES, **changes}))


def test_ppo_after_a_resume(pair):
    adaptive = {"desired_kl": 0.01, "anneal_learning_rate": False}
    selection = selected("gaussian-policy", "ppo", batch_size=25, **adaptive, **PPO_SIZES)
    first = assembly.build(selection, seed=8)
    trained(first, 2)
    compared(pair, selection, learn_steps=2, resumed=first.create_checkpoint())


SMALL_FLOW = {"hidden_sizes": None, "actor_hidden_sizes": (16, 16), "critic_hidden_sizes": (16, 16)}
SMALL_DIFFUSION = {
    "hidden_sizes": None,
    "actor_hidden_sizes": (16, 16, 16),
    "critic_hidden_sizes": (16, 16, 16),
    "num_steps": 4,
}
SIZES = {"global_steps": 1000, "buffer_size": 72, "update_epochs": 2, "learning_rate": 3e-3}


@pytest.mark.parametrize(
    "changes",
    [{"batch_size": 25, "critic_warmup_iterations": 1}, {"batch_size": 71, "target_kl": 1e-6}],
    ids=["ragged", "single"],
)
@pytest.mark.parametrize("variant", ["default", "plus-plus"])
def test_fpo(pair, variant, changes):
    compared(pair, selected("fpo-policy", "fpo", variant, SMALL_FLOW, **{**SIZES, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 25, "finetuned_steps": 2, "critic_warmup_iterations": 1},
        {"batch_size": 71, "finetuned_steps": 1, "target_kl": 1e-6},
    ],
    ids=["ragged", "single"],
)
def test_dppo(pair, changes):
    compared(pair, selected("dppo-policy", "dppo", "default", SMALL_DIFFUSION, **{**SIZES, **changes}))


SAC_SIZES = {"buffer_size": 500, "batch_size": 25, "learning_starts": 24, "learning_rate": 3e-3}


@pytest.mark.parametrize(
    ("changes", "policy_changes"),
    [({}, {}), ({"batch_size": 26, "autotune": False, "policy_frequency": 1}, {"normalize_observations": True})],
    ids=["ragged", "normalised"],
)
def test_sac(pair, changes, policy_changes):
    selection = selected("sac-policy", "sac", policy_changes=policy_changes, **{**SAC_SIZES, **changes})
    shared = compared(pair, selection, learn_steps=3)
    assert shared.learner.updates >= 3


def test_sac_after_a_resume(pair):
    selection = selected("sac-policy", "sac", report_interval=1, **SAC_SIZES)
    first = assembly.build(selection, seed=8)
    trained(first, 2)
    compared(pair, selection, learn_steps=2, resumed=first.create_checkpoint())


class Told(Collectives):
    """A learner that is told what a list says; the last may be an error."""

    rank, world_size = 1, 2

    def __init__(self, *messages):
        self.messages = list(messages)

    def broadcast(self, tree=None):
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        return message


def test_a_learner_whose_peers_are_gone_ends_quietly(capsys):
    assert learner_loop.run(Told(LearnersLost("gone"))) == 0
    assert capsys.readouterr() == ("", "")


def test_a_learner_that_fails_says_why_and_where(monkeypatch, capsys):
    class Failing:
        def join(self, collectives):
            pass

        def learn_batch(self, batch):
            raise ValueError(f"no {batch}")

    monkeypatch.setattr(assembly, "build", lambda selection, seed: Failing())
    assert learner_loop.run(Told(Build(None, 1, 1), Learn("luck"))) == 1
    assert "error: learner 1: ValueError: no luck (test_learner_loop.py, line" in capsys.readouterr().err


def test_a_learner_ends_with_the_run(pair):
    """The last test of the pair: it ends the other process."""
    collectives, process = pair
    assert Team(collectives).dismiss()
    assert process.wait(30) == 0
