import argparse
import json
import os
import signal
import sys

import measure
import numpy as np
import pytest
from measure import BenchmarkError, Durations, Process, bounded, median_ratio


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_process_is_ready_when_its_output_says_so_and_ended_with_the_block():
    with Process(python("import time; print('port 7', flush=True); time.sleep(60)"), name="sleeper") as process:
        assert process.wait_for(r"port (\d+)", 20)[1] == "7"
        assert alive(process.pid)
    assert not alive(process.pid)


def test_process_that_ignores_sigterm_is_killed():
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    with Process(python(code), name="stubborn") as process:
        process.wait_for("up", 20)
        process.stop(grace=0.1)
        assert not alive(process.pid)


def test_process_that_dies_early_is_named_with_its_last_lines():
    with (
        Process(python("print('no such policy'); raise SystemExit(2)"), name="server") as process,
        pytest.raises(BenchmarkError, match=r"server ended with 2:\nno such policy"),
    ):
        process.wait_for("listening", 20)


def test_finish_refuses_a_failed_process():
    with (
        Process(python("raise SystemExit(3)"), name="run") as process,
        pytest.raises(BenchmarkError, match="run exited with 3"),
    ):
        process.finish(20)


def test_nothing_is_left_running_when_the_benchmark_itself_is_ended():
    with (
        pytest.raises(BenchmarkError, match="SIGTERM"),
        bounded(60),
        Process(python("import time; time.sleep(60)"), name="sleeper") as process,
    ):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not alive(process.pid)


def test_durations_are_those_between_the_stamps():
    found = Durations.of(np.array([0, 1000, 3000, 9000]))
    assert (found.count, found.mean, found.p50) == (3, 3.0, 2.0)
    assert found.p99 == pytest.approx(5.92)


def test_median_of_takes_each_figure_on_its_own():
    rounds = [Durations(10, 1.0, 5.0, 9.0), Durations(10, 2.0, 4.0, 7.0), Durations(10, 3.0, 6.0, 8.0)]
    assert Durations.median_of(rounds) == Durations(30, 2.0, 5.0, 8.0)


def test_ratio_is_taken_within_a_round_before_the_median():
    assert median_ratio([2.0, 40.0, 3.0], [1.0, 10.0, 1.0]) == 3.0


def test_report_holds_results_at_the_top_and_survives_json(tmp_path):
    path = tmp_path / "deep" / "report.json"
    measure.write_json(path, measure.report("exchange", {"rounds": 2}, {"ratio": 1.5}))
    content = json.loads(path.read_text())
    assert content["ratio"] == 1.5
    assert content["settings"] == {"rounds": 2}
    assert content["machine"]["cpus"] == os.cpu_count()
    assert content["machine"]["versions"]["numpy"] == np.__version__


def test_report_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        measure.write_json(tmp_path / "report.json", {"ratio": float("nan")})


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    measure.add_report_options(parser, time_limit=30)
    return parser.parse_args(argv)


def test_a_benchmark_shows_what_it_found_and_reports_it(tmp_path):
    shown: list[dict] = []
    args = options("--json", str(tmp_path / "report.json"))
    assert args.time_limit == 30
    assert measure.carry_out("exchange", args, {"rounds": 2}, lambda: {"ratio": 1.5}, shown.append) == 0
    assert shown == [{"ratio": 1.5}]
    content = json.loads((tmp_path / "report.json").read_text())
    assert (content["benchmark"], content["ratio"], content["settings"]) == ("exchange", 1.5, {"rounds": 2})


def test_a_benchmark_that_fails_says_why_and_reports_nothing(tmp_path, capsys):
    def fail() -> dict:
        raise BenchmarkError("no [server]")

    args = options("--json", str(tmp_path / "report.json"))
    assert measure.carry_out("exchange", args, {}, fail, pytest.fail) == 1
    assert capsys.readouterr().err.strip() == "error: no [server]"
    assert not (tmp_path / "report.json").exists()


def test_a_benchmark_is_ended_by_its_time_limit(capsys):
    args = options("--time-limit", "1")
    assert measure.carry_out("exchange", args, {}, signal.pause, pytest.fail) == 1
    assert "took over 1 s (see --time-limit)" in capsys.readouterr().err


def test_a_script_ends_with_the_code_of_main_or_as_interrupted():
    def interrupted() -> int:
        raise KeyboardInterrupt

    for main, code in ((lambda: 1, 1), (interrupted, 130)):
        with pytest.raises(SystemExit) as ended:
            measure.run_script(main)
        assert ended.value.code == code
