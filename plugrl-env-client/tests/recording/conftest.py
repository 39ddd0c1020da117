"""Envs whose every number says where it belongs, and what a recording of them must hold."""

import dataclasses
import threading

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import BaseEnv, Observation, Step
from plugrl_env_client.recording.recorder import Recorder
from plugrl_env_client.recording.recorder_options import RecorderOptions
from plugrl_protocol.spaces import BoxSpace

SIZE = (36, 40, 3)  # large enough for Minari to take it for a picture
BOUND = np.full(2, 1000, np.float32)


def length_of(env, episode):
    return 3 + (env + episode) % 3


def state_of(env, episode, time):
    return np.array([env, episode, time], np.float64) + 1 / 3


def image_of(env, episode, time, size=SIZE):
    """Smooth, so that a video keeps it; its level tells where it is from."""
    level = (env * 60 + episode * 20 + time * 5) % 200
    return np.full(size, level, np.uint8) + np.arange(size[1], dtype=np.uint8)[:, np.newaxis]


def action_of(env, episode, time):
    return np.array([env + time / 8, episode], np.float32)


def reward_of(env, episode, time):
    return 100.0 * env + 10 * episode + time + 0.1


class CodedEnv(BaseEnv):
    """Writes into the same buffers all the time. Odd episodes end by truncation."""

    def __init__(self, num_envs, *, first=0, size=SIZE, key="front", text=False, resets_in_step=False):
        self.num_envs = num_envs
        self.env_id = "coded"
        self.action_space = BoxSpace(shape=(2,), dtype=BOUND.dtype, low=-BOUND, high=BOUND)
        self.resets_in_step = resets_in_step
        self.first = first
        self.size = size
        self.key = key
        self.episode = np.full(num_envs, -1)
        self.time = np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, bool)
        self.images = {key: np.zeros((num_envs, *size), np.uint8)} if size else {}
        self.state = np.zeros((num_envs, 3))
        self.text = np.full(num_envs, "lift" if text else "", "<U8")

    def where(self, i):
        return self.first + i, int(self.episode[i]), int(self.time[i])

    def look(self):
        for i in range(self.num_envs):
            self.state[i] = state_of(*self.where(i))
            if self.size:
                self.images[self.key][i] = image_of(*self.where(i), self.size)
        return Observation(images=self.images, states={"where": self.state}, text=self.text)

    def reset(self, seed):
        return self.reset_indices(np.arange(self.num_envs))

    def reset_indices(self, indices):
        self.episode[indices] += 1
        self.time[indices] = 0
        self.over[indices] = False
        return self.look()

    def actions(self):
        return np.stack([action_of(*self.where(i)) for i in range(self.num_envs)])

    def step(self, actions):
        resetting = self.over.copy() if self.resets_in_step else np.zeros(self.num_envs, bool)
        rewards = np.array([reward_of(*self.where(i)) for i in range(self.num_envs)])
        self.time += 1
        if resetting.any():
            self.reset_indices(resetting.nonzero()[0])
        lengths = [length_of(self.first + i, int(self.episode[i])) for i in range(self.num_envs)]
        self.over = (self.time >= np.array(lengths)) & ~resetting
        odd = self.episode % 2 == 1
        infos = {"success": self.over & ~odd}
        return Step(self.look(), np.where(resetting, 0.0, rewards), self.over & ~odd, self.over & odd, infos)


def play(env, observer, steps, first_env=0):
    """What `Rollout` does, without a server."""
    observer.started(first_env, env.num_envs)
    observer.reset(np.arange(env.num_envs), env.reset(None))
    for _ in range(steps):
        resetting = env.over.nonzero()[0] if env.resets_in_step else np.zeros(0, np.int64)
        actions = env.actions()
        observer.stepped(actions, env.step(actions), resetting)
        if not env.resets_in_step and env.over.any():
            ended = env.over.nonzero()[0]
            observer.reset(ended, env.reset_indices(ended))
    observer.closed()


def whole_episodes(env, steps, *, pause=0):
    """Numbers of the episodes that an env finishes in so many steps. `pause`: steps that a reset takes."""
    numbers, used = [], 0
    while used + length_of(env, len(numbers)) <= steps:
        used += length_of(env, len(numbers)) + pause
        numbers.append(len(numbers))
    return numbers


@dataclasses.dataclass
class Coded:
    """The tests' view of all this."""

    Env = CodedEnv
    play = staticmethod(play)
    whole_episodes = staticmethod(whole_episodes)
    length = staticmethod(length_of)
    state = staticmethod(state_of)
    image = staticmethod(image_of)
    action = staticmethod(action_of)
    reward = staticmethod(reward_of)

    def record(self, folder, *formats, num_envs=2, steps=12, seed=7, env=None, **options):
        """Record some steps and return the recorder, closed."""
        recorder = Recorder(RecorderOptions(format=formats, **options), folder, seed=seed)
        env = env or CodedEnv(num_envs)
        try:
            play(env, recorder.observer(env), steps)
        finally:
            recorder.close()
        return recorder

    def record_side_by_side(self, folder, form, steps):
        """Two recorders, as two processes of one run have them, at the same time."""
        recorders = [Recorder(RecorderOptions(format=(form,)), folder, seed=7) for _ in range(2)]
        envs = [CodedEnv(2, first=2 * k) for k in range(2)]
        threads = [
            threading.Thread(target=play, args=(env, recorder.observer(env), steps, env.first))
            for env, recorder in zip(envs, recorders, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for recorder in recorders:
            recorder.close()
            assert recorder.counts.failure is None

    def states(self, env, episode):
        """[T+1,3]."""
        return np.stack([state_of(env, episode, t) for t in range(length_of(env, episode) + 1)])

    def images(self, env, episode, size=SIZE):
        """[T+1,h,w,c]."""
        return np.stack([image_of(env, episode, t, size) for t in range(length_of(env, episode) + 1)])

    def actions(self, env, episode):
        """[T,2]."""
        return np.stack([action_of(env, episode, t) for t in range(length_of(env, episode))])

    def rewards(self, env, episode):
        """[T]."""
        return np.array([reward_of(env, episode, t) for t in range(length_of(env, episode))])


@pytest.fixture
def coded():
    return Coded()
