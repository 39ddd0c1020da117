import json

import codec
import numpy as np
import pytest
from codec import LARGE, SHAPES, Target


def test_script_measures_every_message_of_a_shape(tmp_path, capsys):
    report = tmp_path / "codec.json"
    assert codec.main(["--quick", "--shape", "n1", "--json", str(report)]) == 0
    content = json.loads(report.read_text())
    assert content["messages"].keys() == {"n1 infer", "n1 action", "n1 feedback"}
    assert content["targets"].keys() == {"encode_x_plain_small", "decode_x_plain_small"}
    assert content["encode_x_plain_small"] == max(m["encode_x_plain"] for m in content["messages"].values()) > 0
    assert content["settings"] == {"quick": True, "rounds": 5, "block_us": 200}
    assert "decode_x_plain_small" in capsys.readouterr().err


def test_large_frames_are_held_against_memcpy_and_their_memory():
    content = codec.results({"image infer": codec.measure_message(SHAPES["image"], "infer", rounds=1, block_us=50)})
    assert content["targets"].keys() == {"encode_of_copy_large", "encode_peak_frames_large", "decode_peak_frames_large"}
    figures = content["messages"]["image infer"]
    assert figures["bytes"] > 2 * 224 * 224 * 3 > LARGE
    assert figures["encode_gb_s"] == pytest.approx(figures["bytes"] / figures["encode_us"] / 1e3, rel=0.01)


@pytest.mark.parametrize("kind", ["infer", "feedback"])
def test_an_image_is_copied_once_on_encode_and_never_on_decode(kind):
    peaks = codec.peaks(codec.MESSAGES[kind](SHAPES["image8"]))
    assert 1 <= peaks["encode_peak_frames"] <= 1.1
    assert peaks["decode_peak_frames"] < 0.1


def test_a_peak_is_what_one_call_adds():
    assert 1_000_000 <= codec.peak(lambda: bytes(1_000_000)) < 1_010_000
    kept = bytes(1_000_000)
    assert codec.peak(lambda: len(kept)) < 10_000


def test_ratios_are_of_the_same_round():
    blocks = {
        "copy": [1.0, 2.0], "encode": [4.0, 8.0], "plain_encode": [2.0, 4.0],
        "decode": [2.0, 4.0], "plain_decode": [1.0, 8.0], "read": [4.0, 8.0],
    }  # fmt: skip
    figures = codec.figures(4_000, blocks)
    assert figures["encode_x_plain"] == 2.0
    assert figures["decode_x_plain"] == 1.25
    assert figures["read_x_plain"] == 2.5
    assert figures["encode_of_copy"] == 0.25
    assert figures["decode_of_copy"] == 0.5
    assert figures["copy_gb_s"] == 2.67


def test_the_worst_message_decides():
    most, least = Target("x", large=False, at_most=1.5), Target("y", large=True, at_least=0.5)
    assert most.judge([1.0, 1.6]) == (1.6, {"at_most": 1.5, "met": False})
    assert least.judge([0.5, 0.9]) == (0.5, {"at_least": 0.5, "met": True})
    assert (most.name, least.name) == ("x_small", "y_large")


def test_bytes_that_differ_from_plain_msgpack_are_an_error_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setattr(codec.payloads, "pack", lambda message: b"")
    assert codec.main(["--quick", "--shape", "n1"]) == 1
    assert "error: n1 infer: our bytes differ from those of plain msgpack" in capsys.readouterr().err


def test_actions_answer_the_infer():
    action = codec.action(SHAPES["n8"])
    assert np.array_equal(action["data"]["env_ids"], codec.payloads.infer(SHAPES["n8"])["env_indices"])


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--rounds", "0"], "--rounds must be at least 1"), (["--block-us", "0"], "--block-us must be positive")],
)
def test_options_are_checked(options, message, capsys):
    with pytest.raises(SystemExit):
        codec.main(options)
    assert message in capsys.readouterr().err
