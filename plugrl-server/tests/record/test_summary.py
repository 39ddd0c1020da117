from pathlib import Path

from plugrl_server.record.summary import Closing, closing_return, configuration, resume_command


def closing(**changes):
    fields = {
        "reason": "finished",
        "error": None,
        "step": 1500,
        "seconds": 2.0,
        "steps_done": 1000,
        "accounting": "feedback rows\n  total",
        "folder": Path("checkpoints/a/b/c"),
        "saved": Path("checkpoints/a/b/c/checkpoints/1500"),
        "rows": [],
        "resume": ["plugrl-run-server", "--exp-name", "c d"],
    }
    return Closing(**fields | changes).text().splitlines()


def test_the_closing_words_name_reason_account_folder_and_how_to_go_on():
    assert closing(rows=[{"step": 1, "rollout/reward": -2.0}]) == [
        "finished: step 1,500, 2.0 s, 500 steps/s",
        "mean return of the last 10 learn steps: -2.0",
        "feedback rows",
        "  total",
        "run folder: checkpoints/a/b/c",
        "checkpoint: checkpoints/a/b/c/checkpoints/1500",
        'load it:    plugrl_server.load_policy("checkpoints/a/b/c")',
        "resume it:  plugrl-run-server --exp-name 'c d'",
    ]


def test_without_a_checkpoint_there_is_nothing_to_load_or_resume():
    lines = closing(saved=None, error="port gone", seconds=0.0, steps_done=0)
    assert lines[:2] == ["finished: step 1,500, 0.0 s, 0 steps/s", "error: port gone"]
    assert lines[-1] == "run folder: checkpoints/a/b/c"


def test_the_closing_return_is_the_mean_of_the_last_ten_known_ones():
    rows = [{"step": i, "rollout/reward": float(i)} for i in range(20)] + [{"step": 20}, {"rollout/reward": None}]
    assert closing_return(rows) == 14.5
    assert closing_return([{"step": 1}]) is None


def test_the_resume_command_repeats_what_the_run_folder_does_not_bring_back():
    command = ["run", "p", "default", "a", "default"]
    assert resume_command(command, "x", Path("checkpoints"), {"import": ()}) == [
        *command,
        "--resume",
        "--exp-name",
        "x",
    ]
    words = resume_command(command, "x", Path("b"), {"import": ("m", "n"), "client": ("c d",)})
    assert words[8:] == ["--checkpoint-base-dir", "b", "--import", "m", "--import", "n", "--client", "c d"]


def test_the_configuration_is_one_paragraph():
    values = {"a": 1, "b": None, "c": "two words", "d": [1, "x"], "e": {"f": ""}}
    assert configuration("policy p", values) == "policy p: a=1, b=None, c='two words', d=[1, x], e=(f='')"
