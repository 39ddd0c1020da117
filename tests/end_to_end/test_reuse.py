"""Training ends on the same weights, bit for bit, whether observations are sent once or twice (SPEC 10.1)."""

import asyncio
import queue
import threading
from unittest.mock import MagicMock

import pytest
from plugrl_env_client.client import run_alone
from plugrl_env_client.envs.base_env import BaseEnv
from plugrl_env_client.envs.gym_families.classic_v1 import ClassicConfig
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, Run, RunnerOptions
from plugrl_env_client.rollout import Outcome
from plugrl_protocol.connection import Connection
from plugrl_protocol.messages import Feedback, Infer
from plugrl_server.algorithm.ppo.ppo_config import PPOConfig
from plugrl_server.assembly import Selection
from plugrl_server.common.checkpoint_manager import CheckpointManager
from plugrl_server.policy.gaussian.gaussian_policy_config import GaussianPolicyConfig
from plugrl_server.serving.server import ServingOptions, TrainingServer
from plugrl_server.source import Source

ENVS = 4
STEPS = 1024


def train(folder, *, reuse):
    """PPO on Pendulum over a loopback WebSocket, both ends in this process; returns its checkpoint's weights."""
    algorithm = PPOConfig(buffer_size=256, batch_size=128, update_epochs=2, global_steps=STEPS)
    selection = Selection("gaussian-policy", "default", GaussianPolicyConfig(device="cpu"), "ppo", "default", algorithm)
    manager = CheckpointManager(folder, keep=None)
    source = Source(selection, seed=1, torch_threads=1, save=manager.save, on_declared=lambda *said: None)
    ports, results = queue.Queue(), []
    events = MagicMock()  # nobody reads them but for the port
    events.listening.side_effect = lambda host, port: ports.put(port)
    server = TrainingServer(source, ServingOptions(port=0), events)
    thread = threading.Thread(target=lambda: results.append(asyncio.run(server.run())))
    thread.start()
    try:
        options = ClientOptions(server_port=ports.get(timeout=30), num_envs=ENVS, max_reconnects=0)
        options.reuse_feedback_obs = reuse
        options.runner = RunnerOptions(max_episode_steps=30)
        run = Run("classic-v1", ClassicConfig(name="Pendulum-v1"), options, 5, 0)
        finished = run_alone(run, interrupts=Interrupts(), show=lambda snapshot: None, interval=1e9)
        assert finished.outcome is Outcome.SERVER_STOPPED, finished.error
    finally:
        server.request_stop("the test is over")
        thread.join(30)
    assert (results[0].reason, results[0].global_step) == ("finished", STEPS)
    files = sorted((folder / str(STEPS)).glob("*.safetensors"))
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture
def sent(monkeypatch):
    """How many rows of observation travel in infers and in feedback."""
    rows, send = {Infer: 0, Feedback: 0}, Connection.send_pieces

    def counted(self, message, now):
        if isinstance(message, Infer | Feedback):
            rows[type(message)] += len(message.observation)
        return send(self, message, now)

    monkeypatch.setattr(Connection, "send_pieces", counted)
    return rows


def test_training_with_and_without_reuse_ends_on_the_same_weights(tmp_path, sent, monkeypatch):
    monkeypatch.setattr(BaseEnv, "reuse_from_bytes", 0)
    twice = train(tmp_path / "twice", reuse=False)
    assert sent[Infer] >= STEPS
    sent.update({Infer: 0, Feedback: 0})
    once = train(tmp_path / "once", reuse=True)
    episodes = ENVS * -(-STEPS // ENVS // 30)
    assert sent[Infer] <= episodes, "only what a reset shows is sent in an infer"
    assert sent[Feedback] >= STEPS
    assert twice.keys() == once.keys() >= {"model.safetensors", "optimizer.safetensors"}
    assert [name for name in once if once[name] != twice[name]] == []
