"""One task of a FAKE robosuite, of both generations."""

import gymnasium
import numpy as np
import pytest
from plugrl_env_client.envs.simulators.robomimic_task import ENV_ID, RobomimicTask

MOVE = np.zeros(7, np.float32)


@pytest.fixture(autouse=True)
def _fakes(fake_robosuite):
    pass


def test_it_is_registered():
    env = gymnasium.make(ENV_ID, task="Lift", arguments={})
    assert isinstance(env.unwrapped, RobomimicTask)


def test_observations_are_of_the_space():
    env = RobomimicTask("Lift", {}, cameras=("agentview",), image_size=6)
    observed, info = env.reset(seed=0)
    assert info == {"success": False}
    assert env.observation_space.contains(observed)
    assert set(observed) == {
        *("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object", "agentview_image"),
    }
    assert env.observation_space.contains(env.step(MOVE)[0])
    assert env.action_space.shape == (7,)


def test_two_envs_of_one_process_have_generators_of_their_own():
    one, other = RobomimicTask("Lift", {}), RobomimicTask("Lift", {})
    alone = [one.reset(seed=3)[0]["object"].tolist(), one.reset()[0]["object"].tolist()]
    mixed = [one.reset(seed=3)[0]["object"].tolist()]
    other.reset(seed=4)
    mixed.append(one.reset()[0]["object"].tolist())
    assert alone == mixed
    assert alone[0] != alone[1]
    assert other.reset(seed=3)[0]["object"].tolist() == alone[0]


@pytest.mark.parametrize("terminates", [False, True])
def test_success_is_the_simulations_own_check(terminates):
    env = RobomimicTask("Lift", {}, terminate_on_success=terminates)
    env.reset()
    told = [env.step(MOVE) for _ in range(6)]
    assert [info["success"] for *_, info in told] == [False] * 5 + [True]
    assert [ended for _, _, ended, _, _ in told] == [False] * 5 + [terminates]
    assert [reward for _, reward, *_ in told] == [0.0] * 5 + [1.0]


@pytest.mark.parametrize(("convention", "rows"), [("opengl", [60, 40, 20, 0]), ("opencv", [0, 20, 40, 60])])
def test_images_are_upright_whatever_robosuites_convention(convention, rows, monkeypatch):
    import robosuite

    monkeypatch.setattr(robosuite.macros, "IMAGE_CONVENTION", convention)
    observed, _ = RobomimicTask("Lift", {}, cameras=("agentview",), image_size=4).reset()
    assert observed["agentview_image"][:, 0, 0].tolist() == rows
    assert observed["agentview_image"][0, :, 1].tolist() == [0, 20, 40, 60], "not mirrored"


def test_arguments_reach_robosuite_but_for_cameras_and_the_horizon(fake_robosuite):
    given = {
        "robots": ["Sawyer"],
        "camera_heights": 84,
        "camera_names": ["old"],
        "ignore_done": False,
        "has_renderer": True,
    }
    RobomimicTask("Lift", given)
    (made,) = fake_robosuite.made
    assert made.arguments == {
        "robots": ["Sawyer"],
        "ignore_done": True,
        "has_renderer": False,
        "has_offscreen_renderer": False,
        "use_camera_obs": False,
        "use_object_obs": True,
    }


def test_closing_closes_the_simulation(fake_robosuite):
    RobomimicTask("Lift", {}).close()
    assert fake_robosuite.made[0].closed
