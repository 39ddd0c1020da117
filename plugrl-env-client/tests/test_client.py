"""One process's share of a run: in one group, or in several."""

import dataclasses

import pytest
from plugrl_env_client.client import run_alone, run_client
from plugrl_env_client.envs.dummy_v1 import DummyConfig
from plugrl_env_client.groups.share import Share
from plugrl_env_client.link.interrupts import Interrupts
from plugrl_env_client.options import ClientOptions, Run


def options(port=1, **changes):
    return dataclasses.replace(ClientOptions(server_port=port, max_reconnects=0), **changes)


def client(opts, share=None, *, show=lambda snapshot: None, interval=1e9):
    run = Run("dummy-v1", DummyConfig(), opts, 0, 0)
    settings = {"interrupts": Interrupts(), "show": show, "interval": interval}
    return run_alone(run, **settings) if share is None else run_client(run, share, **settings)


def test_the_counts_are_shown_now_and_then(fake_server, actions):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 1), exchanges=20)
        peer.stop()

    shown = []
    client(options(fake_server(script).port), show=shown.append, interval=0.0)
    assert [snapshot.steps for snapshot in shown] == list(range(1, 21))
    assert all(0 <= snapshot.wait_share <= 1 for snapshot in shown)


@pytest.mark.parametrize(("groups", "sizes"), [(1, [5]), (2, [2, 3]), (5, [1, 1, 1, 1, 1])])
def test_each_group_has_a_connection(fake_server, actions, groups, sizes):
    def script(peer):
        peer.greet()
        peer.serve(actions(1, 7))

    server = fake_server(script)
    share = Share(1, 10, 5, 60, None)
    finished = client(options(server.port, num_envs=15, num_procs=3, num_groups=groups), share)
    server.wait()
    assert finished.error is None
    assert sorted(len(peer.infers[0]["env_indices"]) for peer in server.peers) == sizes
    assert finished.snapshot.steps == 60
    assert finished.snapshot.feedback_rows == server.feedback_rows == 60
