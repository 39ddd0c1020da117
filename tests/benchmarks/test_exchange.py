import json
import sys

import exchange
import pytest
from exchange import Block
from measure import Durations, Process
from payloads import SHAPES


def test_script_measures_plugrl_against_the_floor(tmp_path):
    report = tmp_path / "exchange.json"
    chosen = ["--contender", "plugrl", "--contender", "plugrl_raw_client", "--contender", "websockets"]
    assert exchange.main(["--quick", "--shape", "n1", *chosen, "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    assert content["shapes"]["n1"].keys() == {"codec", "websockets", "plugrl", "plugrl_raw_client"}
    assert content["ratio_codec_n1"] == content["shapes"]["n1"]["plugrl"]["ratio_codec"] > 0
    assert content["targets"]["ratio_codec_n1"]["at_most"] == 3.0


def test_ratios_are_of_the_same_round_and_judged_by_the_targets():
    slow, fast = (Block(Durations(1, us, us, us), None, 1.0) for us in (40.0, 10.0))
    measured = {"n1": {"codec": [fast, slow], "plugrl": [slow, slow]}}
    content = exchange.results(measured)
    assert content["ratio_codec_n1"] == 2.5
    assert content["targets"] == {"ratio_codec_n1": {"at_most": 3.0, "met": True}}
    assert content["shapes"]["n1"]["plugrl"]["server_cpu_us"] is None
    assert content["noisy_shapes"] == []


def test_a_disturbed_floor_is_named(capsys):
    disturbed = Block(Durations(1, 200.0, 100.0, 4000.0), None, 1.0)
    content = exchange.results({"n1": {"codec": [disturbed], "plugrl": [disturbed]}})
    assert content["noisy_shapes"] == ["n1"]
    exchange.print_table(content)
    assert "do not quote" in capsys.readouterr().err


def test_the_floor_is_always_measured_and_states_policies_are_not_sent_images():
    assert exchange.contenders_for(SHAPES["n8"], ["plugrl_gaussian"]) == ["codec", "plugrl_gaussian"]
    assert exchange.contenders_for(SHAPES["image"], ["plugrl_gaussian"]) == ["codec"]


def test_a_server_that_does_not_start_is_an_error_without_a_traceback(monkeypatch, capsys):
    def broken(shape):
        return Process([sys.executable, "-c", "raise SystemExit('no policy here')"], name="dummy server")

    monkeypatch.setitem(exchange.SERVERS, "dummy", (broken, "listening"))
    assert exchange.main(["--quick", "--shape", "n1", "--contender", "plugrl"]) == 1
    assert "error: dummy server ended with 1:\nno policy here" in capsys.readouterr().err


def test_rounds_are_checked(capsys):
    with pytest.raises(SystemExit):
        exchange.main(["--rounds", "0"])
    assert "--rounds must be at least 1" in capsys.readouterr().err
