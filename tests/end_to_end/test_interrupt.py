"""Ctrl-C ends a run cleanly, with a checkpoint, and its clients with it (lesson 9)."""

import os
import signal

from plugrl_server import load_policy

from tests.end_to_end import programs


def test_ctrl_c_saves_stops_the_clients_and_exits_with_0(serve, tmp_path):
    server, _ = serve(
        *("gaussian-policy", "default", "ppo", "default", "--exp-name", "stopped", "--show-metric-table"),
        *("--algo.buffer-size", 256, "--algo.update-epochs", 1, "--algo.global-steps", 10_000_000),
        *("--client", "plugrl-run-env-client classic-v1 --env.name Pendulum-v1 --num-envs 4"),
    )
    server.wait_for("losses/policy_loss|policy_loss")
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.wait() == 0, server.output
    assert "Traceback" not in server.output

    folder = tmp_path / "checkpoints/ppo/gaussian-policy/stopped"
    _, total = programs.account(server.output)
    assert load_policy(folder).step == total.stored
    log = (folder / "clients/0.log").read_text()
    assert "the server ended the run" in log
    assert programs.sent(log) == (total.received, 0)
    rows = programs.json_lines(folder / "metrics.jsonl")
    assert rows[-1]["step"] <= total.stored
