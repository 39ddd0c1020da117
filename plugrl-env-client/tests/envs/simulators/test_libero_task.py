"""Tasks of a FAKE LIBERO."""

import builtins

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.base_env import EnvError
from plugrl_env_client.envs.simulators.libero_task import ENV_ID, LiberoTask, axis_angle, load_suite

MOVE = np.zeros(7, np.float32)


@pytest.fixture(autouse=True)
def _fakes(fake_libero):
    pass


def task(*task_ids, **flags):
    return LiberoTask("libero_goal", task_ids, cameras=("agentview", "robot0_eye_in_hand"), image_size=4, **flags)


def test_it_is_registered():
    env = gymnasium.make(ENV_ID, suite="libero_goal", task_ids=(0,), cameras=())
    assert isinstance(env.unwrapped, LiberoTask)


def test_observations_are_of_the_space():
    env = task(1)
    observed, info = env.reset(seed=0)
    assert info == {"success": False}
    assert env.observation_space.contains(observed)
    assert observed["text"] == "do task 1"
    assert observed["state"].tolist() == [*observed["robot0_eef_pos"], 0, 0, 0, 0, 0]
    assert env.observation_space.contains(env.step(MOVE)[0])


def test_episodes_go_through_the_tasks_from_the_one_the_seed_says(fake_libero):
    env = task(0, 2)
    texts = [env.reset(seed=5)[0]["text"], *(env.reset()[0]["text"] for _ in range(2))]
    assert texts == ["do task 2", "do task 0", "do task 2"]
    assert [scene.file for scene in fake_libero.made] == [f"at/bddl_files/libero_goal/task_{n}.bddl" for n in (2, 0, 2)]
    assert [scene.closed for scene in fake_libero.made] == [True, True, False]


def test_one_task_is_built_once(fake_libero):
    env = task(1)
    for _ in range(3):
        env.reset()
    assert len(fake_libero.made) == 1


def test_initial_states_are_drawn_by_the_seed():
    env, other = task(1), task(1)
    starts = [env.reset(seed=seed)[0]["robot0_eef_pos"].tolist() for seed in (3, *[None] * 20, 3)]
    assert starts[0] == starts[-1] == other.reset(seed=3)[0]["robot0_eef_pos"].tolist()
    assert {tuple(start) for start in starts} == {(1.0, state, 0.0) for state in range(4)}


def test_objects_settle_before_an_episode(fake_libero):
    task(1, settle_steps=7).reset()
    assert fake_libero.made[-1].still == 7


def test_an_episode_ends_with_its_success():
    env = task(1)
    env.reset(seed=0)
    told = [env.step(MOVE) for _ in range(6)]
    assert [ended for _, _, ended, _, _ in told] == [False] * 5 + [True]
    assert told[-1][4] == {"success": True, "task": 1}
    assert told[-1][1] == 1.0


@pytest.mark.parametrize(("rotates", "rows"), [(True, [60, 40, 20, 0]), (False, [0, 20, 40, 60])])
def test_images_are_turned_as_the_flag_says(rotates, rows):
    observed, _ = task(1, rotate_images=rotates).reset()
    assert observed["agentview_image"][:, 0, 0].tolist() == rows
    assert observed["agentview_image"][0, :, 1].tolist() == rows


def test_closing_twice_closes_the_scene(fake_libero):
    env = task(1)
    env.reset()
    env.close()
    env.close()
    assert fake_libero.made[0].closed


@pytest.mark.parametrize(
    ("quaternion", "expected"),
    [
        ([0, 0, 0, 1], [0, 0, 0]),
        ([0, 0, np.sin(0.3), np.cos(0.3)], [0, 0, 0.6]),
        ([1, 0, 0, 0], [np.pi, 0, 0]),
        ([0, -np.sin(1.2), 0, np.cos(1.2)], [0, -2.4, 0]),
        ([0, 0, 0, -1.0000001], [0, 0, 0]),
    ],
)
def test_rotations_as_axis_times_angle(quaternion, expected):
    np.testing.assert_allclose(axis_angle(np.array(quaternion, np.float64)), expected, atol=1e-12)


def test_a_libero_that_asks_at_its_first_import_is_explained(monkeypatch):
    real = builtins.__import__

    def asking(name, *args, **kwargs):
        if name == "libero.libero":
            raise EOFError("EOF when reading a line")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", asking)
    with pytest.raises(EnvError, match=r'answer it once, python -c "import libero\.libero"'):
        load_suite("libero_goal")
