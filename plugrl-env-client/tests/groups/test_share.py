"""Envs, steps and episodes, divided among processes and groups."""

from plugrl_env_client.groups.share import Share, shares, whole
from plugrl_env_client.options import ClientOptions


def test_envs_steps_and_episodes_are_divided_evenly():
    assert shares(ClientOptions(num_envs=7, num_procs=3, num_steps=100, num_episodes=4)) == [
        Share(0, 0, 3, 34, 2),
        Share(1, 3, 2, 33, 1),
        Share(2, 5, 2, 33, 1),
    ]
    assert shares(ClientOptions(num_envs=2)) == [Share(0, 0, 2, None, None)]


def test_a_process_divides_its_share_among_its_groups():
    assert Share(1, 10, 5, 21, None).divided(2) == [Share(0, 10, 3, 11, None), Share(1, 13, 2, 10, None)]


def test_every_env_belongs_to_one_group_whatever_the_split():
    for procs, groups in ((1, 1), (1, 5), (3, 2), (2, 6)):
        options = ClientOptions(num_envs=13, num_procs=procs, num_steps=50)
        parts = [part for share in shares(options) for part in share.divided(groups)]
        assert [env for part in parts for env in range(part.first_env, part.first_env + part.num_envs)] == [*range(13)]
        assert sum(part.num_steps for part in parts) == 50
        assert len(parts) == procs * groups


def test_envs_are_named_for_the_user():
    assert whole(ClientOptions(num_envs=1)).envs == "env 0"
    assert Share(1, 3, 2, None, None).envs == "envs 3 to 4"
