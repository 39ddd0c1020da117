import json

import env_client
import pytest
from env_client import CORE, MINIMAL, OURS, RAW, Block
from measure import BenchmarkError, Durations

TINY = ["--quick", "--shape", "n1", "--envs", "3", "--warm-up", "0.3"]


def block(cpu_us, wall_us=100.0):
    return Block(Durations(10, wall_us, wall_us, wall_us), cpu_us)


def test_script_measures_both_clients_and_cartpole(tmp_path):
    report = tmp_path / "env_client.json"
    assert env_client.main([*TINY, "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    found = content["shapes"]["n1"]
    assert found[MINIMAL]["cpu_us"] > 0
    assert found[RAW]["cpu_us"] > 0
    assert found[CORE]["cpu_us"] > 0
    assert found[OURS]["cpu_us"] > 0
    assert content["cost_ratio_n1"] == found["ratio_cpu"]
    assert content["targets"].keys() == {"cost_ratio_n1", "cartpole_64_envs_over_64_connections"}
    assert all(rate > 0 for rate in content["cartpole_steps_per_second"].values())


def test_ratios_are_of_the_same_round_and_judged_by_the_targets(capsys):
    shapes = {
        "n1": {
            MINIMAL: [block(10.0), block(20.0)],
            OURS: [block(15.0), block(32.0, 300.0)],
            RAW: [block(5.0), block(8.0)],
            CORE: [block(7.5), block(16.0)],
        },
        "image": {MINIMAL: [block(10.0)], RAW: [block(5.0)], OURS: [block(50.0)], CORE: [block(25.0)]},
    }
    content = env_client.results(shapes, {"one_connection": [60.0, 40.0], "connections": [10.0, 10.0]})
    assert content["cost_ratio_n1"] == 1.55
    assert content["shapes"]["n1"]["ratio_least_cpu"] == 1.5
    assert content["shapes"]["n1"]["ratio_wall"] == 2.0
    assert content["shapes"]["n1"]["ratio_raw"] == 3.5
    assert content["shapes"]["n1"]["ratio_core"] == 2.0
    assert content["cartpole_64_envs_over_64_connections"] == 5.0
    assert content["targets"] == {
        "cost_ratio_n1": {"at_most": 1.6, "met": True},
        "cartpole_64_envs_over_64_connections": {"at_least": 5.0, "met": True},
    }
    env_client.print_table(content)
    assert "cost_ratio_n1 1.55, target at most 1.6: met" in capsys.readouterr().err


def test_what_cannot_be_measured_is_an_error_without_a_traceback(monkeypatch, capsys):
    def fail(*_):
        raise BenchmarkError("no server")

    monkeypatch.setattr(env_client, "measure_shape", fail)
    assert env_client.main(TINY) == 1
    assert "error: no server" in capsys.readouterr().err


def test_rounds_are_checked(capsys):
    with pytest.raises(SystemExit):
        env_client.main(["--rounds", "0"])
    assert "must be at least 1" in capsys.readouterr().err
