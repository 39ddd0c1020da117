"""A few hundred steps of real training with no other Python than the server's."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.peers.processes import Client, ended, start

RUN = "gaussian-policy default ppo default --port 0 --seed 1 --no-show-progress-bar --exp-name peers"
SHORT = "--algo.global-steps 960 --algo.buffer-size 480 --algo.update-epochs 1"


@pytest.mark.slow
def test_plugrl_server_trains_on_the_clients_pendulum(client: Client, tmp_path: Path) -> None:
    command = client.command(8000, "--train", options=("--batch", "4"))
    places = {"127.0.0.1": "{host}", "8000": "{port}"}
    line = " ".join(places.get(word) or shlex.quote(word) for word in command)
    server = [str(Path(sys.executable).with_name("plugrl-run-server")), *RUN.split(), *SHORT.split()]
    end = ended(start([*server, "--checkpoint-base-dir", str(tmp_path), "--client", line]))
    assert end.status == 0, end.output
    assert "received 960 = stored 960 + discarded 0" in end.output
    log = next(tmp_path.rglob("clients/0.log")).read_text()
    assert re.search(r"the server has ended the run; \d+ exchanges", log)
    assert "rollout/reward" in next(tmp_path.rglob("metrics.jsonl")).read_text()
