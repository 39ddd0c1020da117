"""atari-v1, with the Arcade Learning Environment (extra `atari`)."""

import itertools

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.gym_families.atari_v1 import AtariConfig, make_atari
from plugrl_env_client.testing import EnvContract
from plugrl_protocol.spaces import DiscreteSpace

ale_py = pytest.importorskip("ale_py", reason="needs the extra atari")
pytest.importorskip("cv2", reason="needs the extra atari")


@pytest.fixture
def make():
    made = []

    def build(num_envs=1, **flags):
        made.append(make_atari(AtariConfig(**flags), num_envs))
        return made[-1]

    yield build
    for env in made:
        env.close()


def noop(env):
    return env.step(np.zeros(env.num_envs, np.int64))


def test_the_default_is_pong_as_dqn_saw_it(make):
    env = make(2)
    observation = env.reset(0)
    assert (env.env_id, env.action_space, env.max_episode_steps) == ("ALE/Pong-v5", DiscreteSpace(n=6), 27_000)
    assert {name: image.shape for name, image in observation.images.items()} == {"image": (2, 84, 84, 4)}
    assert observation.states == {}
    single = env._envs[0].unwrapped.ale
    assert single.getFloat("repeat_action_probability") == 0.0
    before = single.getEpisodeFrameNumber()
    noop(env)
    assert single.getEpisodeFrameNumber() == before + 4


def test_the_last_images_are_channels_the_newest_last(make):
    env = make()
    seen = [env.reset(0).images["image"].copy()]
    seen += [noop(env).observation.images["image"].copy() for _ in range(5)]
    for before, after in itertools.pairwise(seen):
        assert np.array_equal(after[..., :3], before[..., 1:])


def test_games_start_after_a_random_number_of_no_ops_which_the_seed_decides(make):
    frames = []
    for seed in (0, 0, 1, 2):
        env = make(fire_on_reset=False)
        env.reset(seed)
        frames.append(env._envs[0].unwrapped.ale.getEpisodeFrameNumber())
    assert frames[0] == frames[1]
    assert len(set(frames)) > 1
    env = make(noop_max=0, fire_on_reset=False)
    env.reset(0)
    assert env._envs[0].unwrapped.ale.getEpisodeFrameNumber() == 0


def test_what_is_observed_can_be_chosen(make):
    env = make(grayscale=False, screen_size=42, frame_stack=2)
    assert env.reset(0).images["image"].shape == (1, 42, 42, 6)
    assert make(frame_stack=1).reset(0).images["image"].shape == (1, 84, 84, 1)


@pytest.mark.parametrize("life_loss", [True, False])
def test_a_life_lost_ends_an_episode_only_where_that_is_asked_for(make, life_loss):
    env = make(name="Breakout", life_loss=life_loss)
    env.reset(0)
    ended = [bool(noop(env).terminated[0]) for _ in range(60)]  # FIRE was pressed, and nobody catches the ball
    assert env._envs[0].unwrapped.ale.lives() == 4
    assert sum(ended) == life_loss
    if life_loss:
        env.reset_indices(np.array([0]))
        assert env._envs[0].unwrapped.ale.lives() == 4, "the same game"


@pytest.mark.parametrize(("clip", "points"), [(True, 1.0), (False, 8.0)])
def test_rewards_are_clipped_unless_they_are_not(make, clip, points):
    env = make(clip_rewards=clip)
    env.reset(0)
    game = env._envs[0].unwrapped
    play = game.step
    game.step = lambda action: (*play(action)[:1], 2.0, *play(action)[2:])
    assert noop(env).rewards.tolist() == [points]


def test_ales_own_vector_env_keeps_final_observations(make):
    env = make(3, vectorization="own", kwargs=("max_num_frames_per_episode=40",), noop_max=0)
    assert not env.resets_in_step
    env.reset(0)
    for _ in range(20):
        step = noop(env)
        if step.truncated.all():
            break
    assert step.truncated.all()
    final = step.observation.images["image"].copy()
    assert final.shape == (3, 84, 84, 4)
    first = env.reset_indices(np.array([1])).images["image"]
    assert np.array_equal(first[[0, 2]], final[[0, 2]])
    assert not np.array_equal(first[1], final[1])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"name": "Pongg"}, r"--env.name ALE/Pongg-v5: did you mean ALE/Pong-v5\?"),
        ({"frame_skip": 0}, r"--env.frame-skip 0: expected at least 1"),
        ({"kwargs": ("max_episode_steps=9",)}, r"max_episode_steps would count frames.*--runner.max-episode-steps"),
        ({"noop_max": -1}, r"--env.noop-max -1: expected at least 0"),
        ({"repeat_action_probability": 1.5}, r"--env.repeat-action-probability 1.5: expected 0 to 1"),
        ({"kwargs": ("obs_type=ram",)}, r"--env.kwargs obs_type: the preprocessing takes the screen itself"),
        ({"kwargs": ("mode=77",)}, r"cannot make ALE/Pong-v5: Invalid game mode"),
        ({"vectorization": "own", "frame_stack": 5}, r"--env.frame-stack 5: at most 4 with --env.vectorization own"),
    ],
)
def test_a_mistake_is_refused_by_name(make, flags, says):
    with pytest.raises(EnvError, match=says):
        make(**flags)


def test_an_id_may_be_given_whole(make):
    assert make(name="ALE/Breakout-v5").env_id == "ALE/Breakout-v5"
    assert "ALE/Breakout-v5" in gymnasium.registry


class TestContract(EnvContract):
    num_envs = 2
    steps = 10

    def make_env(self, num_envs):
        return make_atari(AtariConfig(wrappers=("TimeLimit(6)",)), num_envs)


class TestContractOfAlesOwnVectorEnv(EnvContract):
    num_envs = 2
    steps = 20

    def make_env(self, num_envs):
        return make_atari(AtariConfig(vectorization="own", kwargs=("max_num_frames_per_episode=24",)), num_envs)
