"""A look at what an environment returns: that of somebody else may return anything, and what is wrong gets a name."""

from collections.abc import Mapping

import numpy as np
from plugrl_protocol.codec.fields import describe
from plugrl_protocol.errors import LocalProtocolError

from plugrl_env_client.envs.base_env import BaseEnv, EnvError, Observation, Step


def fault(observation: object) -> str | None:
    """What keeps an observation from being sent, with the name of the entry; None: nothing does."""
    if not isinstance(observation, Observation):
        return f"observation: expected an Observation, got {describe(observation)}"
    try:
        Observation(observation.images, observation.states, observation.text)
    except LocalProtocolError as err:
        return str(err)
    return None


class FirstLook:
    """Looks at what each call of an env returns for the first time, and at each entry of its infos.

    Args:
        env: the environments.
    """

    def __init__(self, env: BaseEnv) -> None:
        self._env = env
        self._calls: set[str] = set()
        self._infos: set[str] = set()

    def shown(self, call: str, observation: Observation) -> None:
        """The env has returned this from `call`.

        Raises:
            EnvError: it cannot be sent, or is not of all envs.
        """
        if call in self._calls:
            return
        found = fault(observation)
        if found is not None:
            raise self._wrong(call, found)
        if len(observation) != self._env.num_envs:
            raise self._wrong(call, f"observation: expected {self._env.num_envs} rows, got {len(observation)}")
        self._calls.add(call)

    def stepped(self, step: Step) -> None:
        """The env has returned this from `step`.

        Raises:
            EnvError: names what is not as `Step` says.
        """
        if "step" not in self._calls:
            self._look_at(step)
        if step.infos and not step.infos.keys() <= self._infos:
            for key, value in step.infos.items():
                self._look_at_info(key, value)
            self._infos.update(step.infos)

    def _look_at(self, step: Step) -> None:
        if not isinstance(step, Step):
            raise self._wrong("step", f"a {type(step).__name__}, expected a Step")
        n = self._env.num_envs
        for name, kinds, kind in (
            ("rewards", "biuf", "float"),
            ("terminated", "b", "bool"),
            ("truncated", "b", "bool"),
        ):
            value = getattr(step, name)
            if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.shape != (n,):
                raise self._wrong("step", f"{name}: expected {kind}[{n}], got {describe(value)}")
        if not isinstance(step.infos, Mapping):
            raise self._wrong("step", f"infos: expected a map of arrays, got {describe(step.infos)}")
        self.shown("step", step.observation)

    def _look_at_info(self, key: str, value: object) -> None:
        n = self._env.num_envs
        if not isinstance(value, np.ndarray) or value.shape[:1] != (n,):
            raise self._wrong("step", f"infos[{key!r}]: expected an array of {n} rows, got {describe(value)}")
        if key == "success" and (value.dtype.kind != "b" or value.ndim > 1):
            raise self._wrong("step", f"infos['success']: expected bool[{n}], got {describe(value)}")

    def _wrong(self, call: str, what: str) -> EnvError:
        return EnvError(f"{self._env.env_id}: {call}() returned {what}")
