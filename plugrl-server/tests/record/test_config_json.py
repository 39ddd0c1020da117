import dataclasses
import enum
import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from plugrl_server.record.config_json import RecordError, config_from_json, config_to_json, json_value


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclasses.dataclass
class Net:
    hidden: tuple[int, ...] = (64, 64)
    act: Literal["tanh", "relu"] = "tanh"


@dataclasses.dataclass
class Config:
    steps: int | None = 10
    rate: float = 0.5
    flag: bool = True
    name: str = "x"
    path: Path = Path("a/b")
    mode: Mode = Mode.FAST
    pair: tuple[int, str] = (1, "a")
    names: list[str] | None = None
    options: dict[str, float] = dataclasses.field(default_factory=dict)
    net: Net = dataclasses.field(default_factory=Net)
    anything: Any = None
    action_space: object = None


def test_every_kind_of_field_comes_back_with_its_type():
    config = Config(
        steps=None,
        rate=math.inf,
        mode=Mode.SLOW,
        pair=(2, "b"),
        names=["p", "q"],
        options={"a": 1},
        net=Net((32,), "relu"),
        path=Path("c"),
        anything=[1, "x"],
        action_space=object(),
    )
    values = json.loads(json.dumps(config_to_json(config), allow_nan=False))
    restored = config_from_json(Config(), values)
    assert restored == dataclasses.replace(config, action_space=None)
    assert type(restored.options["a"]) is float
    assert type(restored.net.hidden) is tuple


def test_what_is_not_recorded_keeps_its_default():
    assert config_from_json(Config(rate=0.25), {"steps": 3}) == Config(steps=3, rate=0.25)


def test_what_a_client_declares_is_not_among_the_values():
    assert "action_space" not in config_to_json(Config(action_space=object()))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"gone": 1}, "Config has no field gone; it was recorded by another version"),
        ({"steps": "many"}, r"steps: expected int or NoneType, got 'many'"),
        ({"flag": 1}, "flag: expected bool, got 1"),
        ({"rate": True}, "rate: expected float, got True"),
        ({"mode": "WILD"}, "mode: expected Mode, got 'WILD'"),
        ({"net": {"act": "gelu"}}, "act: expected .*tanh.*relu.*, got 'gelu'"),
        ({"net": {"hidden": ["a"]}}, r"hidden\[0\]: expected int, got 'a'"),
        ({"pair": [1]}, r"pair: expected 2 values, got \[1\]"),
        ({"names": 3}, "names: expected"),
        ({"path": 3}, "path: expected .*Path.*, got 3"),
        ({"options": []}, "options: expected"),
        ({"action_space": 1}, "has no field action_space"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values, words):
    with pytest.raises(RecordError, match=words):
        config_from_json(Config(), values)


def test_a_type_that_cannot_be_restored_is_named():
    @dataclasses.dataclass
    class Odd:
        call: complex = 1j

    with pytest.raises(RecordError, match=r"call: a value of type .*complex.* cannot be restored"):
        config_from_json(Odd(), {"call": "1j"})


def test_json_values():
    assert json_value({"a": (np.float32(0.5), np.int64(2), None), 3: Mode.FAST}) == {"a": [0.5, 2, None], "3": "FAST"}
    assert [json_value(x) for x in (math.nan, -math.inf, Path("p"))] == ["NaN", "-Infinity", "p"]
    assert json_value({1, 2}) == "{1, 2}"
