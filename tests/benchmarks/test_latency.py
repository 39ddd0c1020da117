import asyncio
import json
import time

import latency
import numpy as np
import pytest
from plugrl_env_client.registration import make_env

TINY = ["--rounds", "1", "--envs", "3", "--seconds", "0.4", "--warm-up", "0.3", "--cpu-ms", "0.2", "--delay-ms", "2"]


def test_script_measures_groups_behind_a_slow_line(tmp_path):
    report = tmp_path / "latency.json"
    assert latency.main([*TINY, "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    assert content["steps_per_second"].keys() == {
        "single_env",
        "one_group",
        "groups",
        "undelayed_one_group",
        "undelayed_groups",
    }
    assert all(rate > 0 for rate in content["steps_per_second"].values())
    assert {key: set(target) - {"met"} for key, target in content["targets"].items()} == {
        "overlap_16_groups": {"at_least"},
        "over_undelayed": {"at_most"},
        "speedup_16_groups": {"at_least"},
    }
    assert (content["settings"]["envs"], content["settings"]["delay_ms"]) == (3, 2.0)


def test_the_ratios_and_bounds_of_a_machine_without_losses():
    """16 envs of 3 ms behind 50 ms."""
    rates = {
        "single_env": [1 / 0.053],
        "one_group": [16 / 0.098],
        "groups": [16 / 0.053],
        "undelayed_one_group": [1 / 0.003],
        "undelayed_groups": [1 / 0.004],
    }
    content = latency.results(rates, envs=16)
    assert content["overlap_16_groups"] == content["bounds"]["overlap_16_groups"] == pytest.approx(1.849, abs=1e-3)
    assert content["over_undelayed"] == content["bounds"]["over_undelayed"] == pytest.approx(1.104, abs=1e-3)
    assert content["speedup_16_groups"] == content["bounds"]["speedup_16_groups"] == 16.0
    assert all(target["met"] for target in content["targets"].values())


def test_a_target_that_is_missed_is_said_so(capsys):
    content = latency.results({name: [10.0] for name in ("single_env", "one_group", "groups")} | UNDELAYED, envs=16)
    assert [target["met"] for target in content["targets"].values()] == [False, False, False]
    latency.print_table(content)
    assert "over_undelayed 2.00, target at most 1.5, as measured at best 1.00: missed" in capsys.readouterr().err


UNDELAYED = {"undelayed_one_group": [5.0], "undelayed_groups": [20.0]}


def test_the_env_needs_processor_time_for_every_row():
    env = make_env("busy-v1", latency.BusyConfig(cpu_ms=2.0), 3)
    env.reset(None)
    before = time.thread_time()
    step = env.step(np.zeros((3, 1)))
    assert time.thread_time() - before >= 0.006
    assert step.rewards.tolist() == [1.0, 1.0, 1.0]


def test_the_proxy_passes_everything_on_in_order_and_the_end_too():
    pieces = [bytes([number]) * (1 + 997 * number) for number in range(40)]

    async def through_the_proxy():
        reader, writer = asyncio.StreamReader(), Sink()
        passing = asyncio.ensure_future(latency.pass_on(reader, writer, 0.002))
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        fed_until = time.monotonic()
        reader.feed_eof()
        await passing
        return writer, fed_until

    writer, fed_until = asyncio.run(through_the_proxy())
    assert b"".join(writer.written) == b"".join(pieces)
    assert writer.ended_at - fed_until >= 0.002


class Sink:
    """A writer that remembers."""

    def __init__(self):
        self.written = []
        self.ended_at = None

    def write(self, data):
        assert self.ended_at is None
        self.written.append(data)

    def write_eof(self):
        self.ended_at = time.monotonic()


def test_a_client_that_fails_is_an_error_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(latency, "measure_rounds", fail)
    assert latency.main(TINY) == 1
    assert "error: no line" in capsys.readouterr().err


def fail(*_):
    raise latency.measure.BenchmarkError("no line")


def test_rounds_and_envs_are_checked(capsys):
    with pytest.raises(SystemExit):
        latency.main(["--envs", "1"])
    assert "--envs at least 2" in capsys.readouterr().err
