"""What observers are told, and that nothing is done for nobody."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from plugrl_env_client.chunks import ChunkPlan
from plugrl_env_client.envs.base_env import Observation
from plugrl_env_client.envs.dummy_v1 import DummyConfig, DummyEnv
from plugrl_env_client.envs.gym_adapter.vector_env import GymVectorEnv
from plugrl_env_client.link.address import Address
from plugrl_env_client.link.client_link import Link
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.link.reconnect import Reconnector
from plugrl_env_client.observers import RolloutObserver
from plugrl_env_client.reporting.tally import Tally
from plugrl_env_client.rollout import Rollout, RolloutOptions


class Diary(RolloutObserver):
    def __init__(self):
        self.told = []

    def started(self, first_env, num_envs):
        self.told.append(("started", first_env, num_envs))

    def reset(self, indices, observation):
        self.told.append(("reset", indices.tolist(), _times(observation)))

    def stepped(self, actions, step, resetting):
        ended = (step.terminated | step.truncated).tolist()
        self.told.append(
            (
                "stepped",
                actions.reshape(len(actions), -1)[:, 0].tolist(),
                _times(step.observation),
                ended,
                resetting.tolist(),
            )
        )

    def exchanged(self, waited):
        assert waited >= 0
        self.told.append(("exchanged",))

    def closed(self):
        self.told.append(("closed",))


def _times(observation):
    return observation.states["obs"][:, 2].astype(int).tolist()


def run(env, server, observers=(), **options):
    interrupts = Interrupts()
    address = Address("127.0.0.1", server.port)

    def open_link():
        return Link.open(
            address,
            connect_timeout=10,
            action_timeout=None,
            max_frame=2**24,
            api_key=None,
            interrupts=interrupts,
        )

    reconnector = Reconnector(address, open_link, max_reconnects=1, after_stop=False, sleep=lambda seconds: None)
    return Rollout(
        env,
        reconnector,
        RolloutOptions(**options),
        interrupts=interrupts,
        tally=Tally(env.num_envs),
        progress=lambda waited: None,
        observers=observers,
    ).run()


def serving(actions, *shape):
    def script(peer):
        peer.greet()
        peer.serve(actions(*shape))

    return script


def test_everything_that_happens_is_told_in_order(fake_server, actions):
    diary = Diary()
    env = DummyEnv(DummyConfig(), 2)
    server = fake_server(serving(actions, 2, 3))
    run(env, server, [diary], num_steps=8, max_episode_steps=3, first_env=5)
    # two steps a chunk, cut by the end of the episode after three; then one more, which makes eight in all
    assert diary.told == [
        ("started", 5, 2),
        ("reset", [0, 1], [0, 0]),
        ("stepped", [0, 0], [1, 1], [False, False], []),
        ("stepped", [0, 0], [2, 2], [False, False], []),
        ("exchanged",),
        ("stepped", [0, 0], [3, 3], [True, True], []),
        ("exchanged",),
        ("reset", [0, 1], [0, 0]),
        ("stepped", [0, 0], [1, 1], [False, False], []),
        ("exchanged",),
        ("closed",),
    ]


def test_envs_that_reset_themselves_say_so_in_the_step(fake_server, actions):
    diary = Diary()
    makers = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=2)] * 2
    env = GymVectorEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP), env_id="CartPole-v1")
    assert env.resets_in_step
    run(env, fake_server(serving(actions, 1)), [diary], num_steps=6)
    steps = [told for told in diary.told if told[0] == "stepped"]
    assert [(ended, resetting) for _, _, _, ended, resetting in steps[:3]] == [
        ([False, False], []),
        ([True, True], []),
        ([False, False], [0, 1]),
    ]
    assert [told[1] for told in diary.told if told[0] == "reset"] == [[0, 1]]


def test_the_end_is_told_after_a_failure_too(fake_server, actions):
    class Broken(DummyEnv):
        def step(self, actions):
            raise RuntimeError("broken")

    diary = Diary()
    with pytest.raises(RuntimeError, match="broken"):
        run(Broken(DummyConfig(), 1), fake_server(serving(actions, 2, 3)), [diary])
    assert [told[0] for told in diary.told] == ["started", "reset", "closed"]


def test_nothing_is_made_for_nobody(fake_server, actions, monkeypatch):
    def refuse(self):
        raise AssertionError("asked for what only observers need")

    monkeypatch.setattr(ChunkPlan, "truncated", refuse)
    run(DummyEnv(DummyConfig(), 1), fake_server(serving(actions, 2, 3)), num_steps=4)
    with pytest.raises(AssertionError, match="only observers"):
        run(DummyEnv(DummyConfig(), 1), fake_server(serving(actions, 2, 3)), [RolloutObserver()], num_steps=4)


class Untouched(np.ndarray):
    """Images that may be sent as they are, and nothing else: no rows of theirs, and no copies."""

    def _refuse(self, *args, **kwargs):
        raise AssertionError("looked into the images")

    __getitem__ = copy = astype = take = flatten = __copy__ = __deepcopy__ = __array_function__ = _refuse


class Camera(DummyEnv):
    def __init__(self, num_envs):
        super().__init__(DummyConfig(images=("cam",), image_size=128), num_envs)
        seen = self._observation
        images = {name: image.view(Untouched) for name, image in seen.images.items()}
        self._observation = Observation(images=images, states=seen.states, text=seen.text)


class Copies(RolloutObserver):
    def stepped(self, actions, step, resetting):
        step.observation.take(np.arange(len(actions)))


def test_images_are_sent_without_a_copy_where_nobody_observes(fake_server, actions):
    server = fake_server(serving(actions, 2, 3))
    run(Camera(2), server, num_steps=12)
    server.wait()
    sent = server.peers[0].feedbacks[-1]["data"]["obs"]["images"]["cam"]
    assert (sent.shape, sent.min(), sent.max()) == ((2, 128, 128, 3), 6, 6)
    with pytest.raises(AssertionError, match="looked into"):
        run(Camera(2), fake_server(serving(actions, 2, 3)), [Copies()], num_steps=12)


def test_an_observer_may_ignore_everything(fake_server, actions):
    run(DummyEnv(DummyConfig(), 1), fake_server(serving(actions, 2, 3)), [RolloutObserver()], num_steps=300)
