"""Two wrappers of DeepMind's preprocessing that Gymnasium does not have (Mnih et al. 2015, as in OpenAI Baselines)."""

from typing import Any

import gymnasium

_NOOP = 0


class FireOnReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE after every reset: some games wait for it, and an agent might never find out."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and press FIRE."""
        self.env.reset(seed=seed, options=options)
        game: Any = self.env.unwrapped
        fire = game.get_action_meanings().index("FIRE")
        observation, _, terminated, truncated, info = self.env.step(fire)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)


class LifeLoss(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends an episode where a life is lost; unless the game is over, the next one goes on in it.

    A reset with a seed always starts a new game.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        super().__init__(env)
        self._lives = 0
        self._game_over = True

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and terminate where a life is lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = self._count()
        # Some games show 0 lives for a few frames before they are over.
        lost = 0 < lives < self._lives
        self._lives = lives
        self._game_over = terminated or truncated
        return observation, reward, terminated or lost, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Go on with a no-op in the same game, or start a new one."""
        observation: Any = None
        info: dict[str, Any] = {}
        if seed is None and not self._game_over:
            observation, _, terminated, truncated, info = self.env.step(_NOOP)
            self._game_over = terminated or truncated
        if seed is not None or self._game_over:
            observation, info = self.env.reset(seed=seed, options=options)
        self._game_over = False
        self._lives = self._count()
        return observation, info

    def _count(self) -> int:
        game: Any = self.env.unwrapped
        return int(game.ale.lives())
