"""FIRE at the start, and episodes that are lives, with a game that is made up."""

import types

import gymnasium
import pytest
from gymnasium import spaces
from plugrl_env_client.envs.gym_families.atari_wrappers import FireOnReset, LifeLoss

FIRE = 1


class Game(gymnasium.Env):
    """Two lives of two steps each; observes (games begun, steps in the game); remembers its actions."""

    observation_space = spaces.Box(0, 100, (2,))
    action_space = spaces.Discrete(3)

    def __init__(self, lives=(2, 2, 1, 1), meanings=("NOOP", "FIRE", "LEFT")):
        self.games, self.time, self.course = 0, 0, lives
        self.meanings, self.actions = list(meanings), []
        self.ale = types.SimpleNamespace(lives=lambda: 0 if self.time >= 4 else self.course[self.time])

    def get_action_meanings(self):
        return self.meanings

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games += 1
        self.time = 0
        return (self.games, 0), {}

    def step(self, action):
        self.actions.append(action)
        self.time += 1
        return (self.games, self.time), 1.0, self.time >= 4, False, {}


def test_a_life_lost_ends_the_episode_and_the_next_goes_on_in_the_game():
    env = LifeLoss(Game())
    assert env.reset(seed=0)[0] == (1, 0)
    assert env.step(2)[2] is False
    assert env.step(2)[:3] == ((1, 2), 1.0, True)
    assert env.reset()[0] == (1, 3), "a no-op in the same game"
    assert env.unwrapped.actions == [2, 2, 0]
    assert env.step(2)[:3] == ((1, 4), 1.0, True)
    assert env.reset()[0] == (2, 0), "the game was over"


def test_a_reset_with_a_seed_begins_a_new_game():
    env = LifeLoss(Game())
    env.reset()
    env.step(2)
    assert env.reset(seed=1)[0] == (2, 0)


def test_a_game_that_ends_in_the_no_op_begins_anew():
    env = LifeLoss(Game(lives=(2, 2, 2, 1)))
    env.reset()
    for _ in range(3):
        ended = env.step(2)[2]
    assert ended
    assert env.reset()[0] == (2, 0)


def test_no_lives_for_a_few_frames_are_no_life_lost():
    env = LifeLoss(Game(lives=(2, 0, 0, 0)))
    env.reset()
    assert [env.step(2)[2] for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("meanings", [("NOOP", "FIRE", "LEFT"), ("NOOP", "LEFT", "FIRE")])
def test_fire_is_pressed_after_every_reset(meanings):
    env = FireOnReset(Game(meanings=meanings))
    assert env.reset(seed=0)[0] == (1, 1)
    assert env.unwrapped.actions == [meanings.index("FIRE")]


def test_a_game_that_ends_with_fire_begins_anew():
    game = Game()
    game.step = lambda action: ((0, 0), 0.0, True, False, {})
    assert FireOnReset(game).reset()[0] == (2, 0)


def test_fire_comes_with_every_life():
    env = FireOnReset(LifeLoss(Game(lives=(2, 2, 1, 1))))
    env.reset()
    env.step(2)
    env.reset()
    assert env.unwrapped.actions == [FIRE, 2, 0, FIRE]
