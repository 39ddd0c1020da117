"""What the page is told, and what is done for it while nobody looks."""

import json
import struct
import zlib

import numpy as np
import pytest
from plugrl_env_client.envs.base_env import Observation, Step
from plugrl_env_client.viewer import scene as scenes
from plugrl_env_client.viewer.scene import FRAME_SECONDS, IDLE_SECONDS, LONGEST_SIDE, Scene

NOBODY = np.zeros(0, np.int64)


class Stage:
    """A scene with one group of n envs, and the time that only the test moves."""

    def __init__(self, n=2, first_env=3):
        self.time = 100.0
        self.n = n
        self.scene = Scene("dummy-v1: envs 3 to 4", now=lambda: self.time)
        self.group = self.scene.observer()
        self.group.started(first_env, n)

    def look(self, value, *, state=0.0, size=4):
        return Observation(
            images={"cam": np.full((self.n, size, size, 3), value, np.uint8)},
            states={"s": np.full((self.n, 2), state)},
            text=["pick"] * self.n,
        )

    def reset(self, value=0, rows=None):
        self.group.reset(np.arange(self.n) if rows is None else np.array(rows), self.look(value))

    def step(self, value=0, *, rewards=1.0, done=(), resetting=NOBODY, **look):
        ended = np.zeros(self.n, bool)
        ended[list(done)] = True
        rewards = np.broadcast_to(np.asarray(rewards, np.float32), (self.n,))
        step = Step(self.look(value, **look), rewards, ended, np.zeros(self.n, bool), {})
        self.group.stepped(np.zeros((self.n, 1)), step, np.asarray(resetting, np.int64))


def pixels(file):
    """The first value of a PNG whose first row has no filter or the left one."""
    assert file.startswith(b"\x89PNG")
    start = file.index(b"IDAT")
    (length,) = struct.unpack(">I", file[start - 4 : start])
    return zlib.decompress(file[start + 4 : start + 4 + length])[1]


def test_before_anything_is_seen_there_is_nothing_to_tell():
    told = Scene("x").describe()
    assert (told["num_envs"], told["envs"], told["mean_return"], told["running"]) == (0, [], None, False)


def test_what_is_told_of_each_env():
    stage = Stage()
    stage.reset()
    stage.step(rewards=[1.0, 2.0])
    stage.step(rewards=[1.0, 2.0], done=[1])
    stage.reset(rows=[1])
    stage.step(rewards=[1.0, 2.0])
    told = stage.scene.describe()
    assert (told["title"], told["num_envs"], told["steps"], told["episodes"], told["mean_return"]) == (
        "dummy-v1: envs 3 to 4",
        2,
        6,
        1,
        4.0,
    )
    first, second = told["envs"]
    assert (first["env"], first["return"], first["length"], first["last_return"]) == (3, 3.0, 3, None)
    assert (second["env"], second["return"], second["length"], second["last_return"]) == (4, 2.0, 1, 4.0)
    assert (second["images"], second["text"]) == (["cam"], "pick")
    assert second["states"] == {"s": {"size": 2, "values": [0.0, 0.0]}}


def test_an_env_that_resets_itself_begins_anew_in_that_step():
    stage = Stage()
    stage.reset()
    stage.step(done=[0])
    stage.step(resetting=[0])
    stage.step()
    told = stage.scene.describe()["envs"]
    assert [(env["return"], env["length"], env["episodes"]) for env in told] == [(1.0, 1, 1), (3.0, 3, 0)]
    assert stage.scene.describe()["steps"] == 5


def test_only_some_envs_are_told_of_where_there_are_many():
    stage = Stage(n=9, first_env=0)
    stage.reset()
    assert [env["env"] for env in stage.scene.describe(first=4, count=3)["envs"]] == [4, 5, 6]
    assert stage.scene.describe(first=4, count=3)["num_envs"] == 9


def test_groups_are_told_of_in_order():
    stage = Stage(first_env=3)
    stage.reset()
    before = stage.scene.observer()
    assert stage.scene.describe()["num_envs"] == 2, "it has not begun"
    before.started(0, 3)
    before.reset(np.arange(3), Observation(images={}, states={}, text=[""] * 3))
    assert [env["env"] for env in stage.scene.describe()["envs"]] == [0, 1, 2, 3, 4]
    assert stage.scene.picture(1, "cam") is None
    assert stage.scene.picture(4, "cam") is not None


def test_the_newest_picture_is_a_png_of_what_the_env_saw():
    stage = Stage()
    stage.scene.describe()
    stage.reset(7)
    assert pixels(stage.scene.picture(3, "cam")) == 7
    stage.time += FRAME_SECONDS
    stage.step(9)
    assert pixels(stage.scene.picture(4, "cam")) == 9
    assert stage.scene.picture(5, "cam") is None
    assert stage.scene.picture(2, "cam") is None
    assert stage.scene.picture(3, "other") is None


def test_what_is_shown_does_not_change_with_the_envs_buffers():
    stage = Stage()
    seen = stage.look(7)
    stage.group.reset(np.arange(2), seen)
    seen.images["cam"][:] = 200
    seen.states["s"][:] = 200.0
    assert pixels(stage.scene.picture(3, "cam")) == 7
    assert stage.scene.describe()["envs"][0]["states"]["s"]["values"] == [0.0, 0.0]


def frames(stage, seconds, step):
    """How many copies are made in so many seconds with a step every `step` seconds."""
    before = stage.group.shown[0]
    for _ in range(round(seconds / step)):
        stage.time += step
        stage.step()
    return stage.group.shown[0] - before


def test_while_nobody_looks_hardly_anything_is_copied_and_nothing_encoded(monkeypatch):
    made = []
    monkeypatch.setattr(scenes, "png", lambda image: made.append(image) or b"")
    stage = Stage()
    stage.reset()
    assert frames(stage, seconds=20.0, step=0.01) <= 20 / IDLE_SECONDS
    stage.scene.describe()
    assert 5 <= frames(stage, seconds=1.5, step=0.01) <= 1.5 / FRAME_SECONDS
    assert frames(stage, seconds=30.0, step=0.01) < 20
    assert made == []
    for _ in range(3):
        stage.scene.picture(3, "cam")
    assert len(made) == 1, "once for each copy"
    stage.time += FRAME_SECONDS
    stage.step()
    stage.scene.picture(3, "cam")
    assert len(made) == 2


def test_a_large_picture_is_shown_smaller():
    stage = Stage(n=1)
    stage.group.reset(np.arange(1), stage.look(7, size=1100))
    shown = stage.group.shown[1].images["cam"]
    assert shown.shape == (1, 367, 367, 3)
    assert max(shown.shape) <= LONGEST_SIDE


def test_rates_are_those_of_the_last_seconds():
    stage = Stage()
    stage.reset()
    for _ in range(100):
        stage.time += 10.0
        stage.step()
    for index in range(100):
        stage.time += 0.1
        stage.step()
        stage.group.exchanged(1000.0 + index * 0.025)
    told = stage.scene.describe()
    assert told["steps_per_second"] == pytest.approx(20.0, rel=0.02)
    assert told["waiting"] == pytest.approx(0.25, rel=0.05)
    stage.group.exchanged(0.5)  # a new connection counts from 0
    assert stage.scene.describe()["waiting"] < 0.4
    stage.group.closed()
    told = stage.scene.describe()
    assert (told["running"], told["steps_per_second"], told["waiting"]) == (False, 0.0, 0.0)
    assert told["steps"] == 400


@pytest.mark.parametrize(("reward", "shown"), [(float("inf"), "inf"), (-float("inf"), "-inf"), (float("nan"), "nan")])
def test_what_is_no_number_is_told_all_the_same(reward, shown):
    stage = Stage(n=1)
    stage.reset()
    stage.time += IDLE_SECONDS
    stage.step(rewards=reward, state=float("nan"), done=[0])
    told = stage.scene.describe()
    json.dumps(told, allow_nan=False)
    env = told["envs"][0]
    assert (env["return"], env["last_return"], told["mean_return"]) == (shown, shown, shown)
    assert env["states"]["s"]["values"] == ["nan", "nan"]
    stage.step(resetting=[0])
    assert stage.scene.describe()["envs"][0]["return"] == 0.0
