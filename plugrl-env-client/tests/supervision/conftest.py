"""An env that breaks in every way there is, and how to wait for processes that are not ours."""

import os
import select
import sys
from pathlib import Path

import pytest
from plugrl_env_client import registration

BROKEN_ENV = '''
import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
from plugrl_env_client.envs.base_env import BaseEnv, BaseEnvConfig, EnvError, Observation, Step
from plugrl_env_client.registration import register_env, register_env_config


@register_env_config("broken-v1")
@dataclasses.dataclass
class BrokenConfig(BaseEnvConfig):
    how: str = "raise"
    at_step: int = 10
    of: int = 3
    marker: str = ""


def break_down(how):
    print(f"about to {how}")
    if how == "raise":
        raise RuntimeError("joint 3")
    if how == "refuse":
        raise EnvError("joint 3 is missing")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        threading.Event().wait()
    if how == "spin":
        re.match("(a+)+$", "a" * 100 + "b")
    if how == "chatter":
        for number in range(100_000):
            print("chatter", number)
        os.abort()
    if how == "leave":
        print("left", subprocess.Popen(["sleep", "600"]).pid)
        os._exit(4)


@register_env("broken-v1")
class Broken(BaseEnv):
    """Breaks at a step (0: when it is made; -1: when it is closed), where it has so many envs."""

    def __init__(self, config, num_envs):
        self.num_envs, self.env_id, self.config, self.at = num_envs, "broken-v1", config, np.zeros((num_envs, 1))
        self.maybe_break(0)

    def maybe_break(self, step):
        marker = Path(self.config.marker or os.devnull)
        if step == self.config.at_step and self.num_envs == self.config.of and not marker.is_file():
            if self.config.marker:
                marker.touch()
            break_down(self.config.how)

    def reset(self, seed):
        print("seed", seed)
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices):
        self.at[indices] = 0
        return self.show()

    def step(self, actions):
        self.at += 1
        self.maybe_break(self.at[0, 0])
        done = self.at[:, 0] >= 20
        return Step(self.show(), np.ones(self.num_envs), done, np.zeros_like(done), {})

    def show(self):
        return Observation(images={}, states={"at": self.at}, text=[""] * self.num_envs)

    def close(self):
        self.maybe_break(-1)
'''


@pytest.fixture(autouse=True)
def broken_env(tmp_path, monkeypatch):
    """A module `broken_env` for `--import`, which registers `broken-v1`."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "broken_env.py").write_text(BROKEN_ENV)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield
    sys.modules.pop("broken_env", None)
    for table in (registration._factories, registration._configs):
        table.pop("broken-v1", None)


@pytest.fixture
def broken(fake_server, actions):
    """The arguments of a client whose first process, or group, of `of` envs breaks, and the server that it runs
    against."""

    def make(how, *flags, at_step=10, procs=2, envs=5, of=3):
        def script(peer):
            peer.greet()
            peer.serve(actions(4, 1))

        server = fake_server(script)
        chosen = f"--env.how {how} --env.at-step {at_step} --env.of {of} --num-procs {procs} --num-envs {envs}"
        fixed = f"broken-v1 --import broken_env --server-port {server.port} --exp-name run"
        return server, [*fixed.split(), *chosen.split(), *flags]

    return make


@pytest.fixture
def gone():
    """Wait until a process, whosever child it is, has ended; the test fails where it does not."""

    def wait(pid):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([handle], [], [], 30)
            assert ended or not Path(f"/proc/{pid}").exists(), f"process {pid} is still there"
        finally:
            os.close(handle)

    return wait
