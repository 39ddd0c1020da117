import dataclasses
import json
import subprocess
import sys
import typing

import numpy as np
import pytest
from plugrl_protocol.spaces import BoxSpace, Declaration
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.assembly import Selection
from plugrl_server.cli import main, parse
from plugrl_server.common.checkpoint_manager import Checkpoint, CheckpointManager
from plugrl_server.record.run_record import Part, RunRecord
from plugrl_server.run_config import UsageError
from plugrl_server.selecting import config_classes, split

FOUR = ["dummy-policy", "default", "dummy", "default"]
FLAGS = """
--algo.global-steps --algo.gamma --policy.device --policy.obs-dim --policy.action-dim --host --port --exp-name --prefix
--suffix --seed --overwrite --resume --checkpoint-base-dir --keep-checkpoints --mini-infer-batch-size --infer-wait-ms
--feedback-wait-timeout --torch-threads --metadata --api-key --max-frame-mib --client --log-level --show-progress-bar
--no-show-progress-bar --show-metric-table --import --track.wandb --track.swanlab --deterministic --spin-us
--learners
"""
PPO = ["gaussian-policy", "default", "ppo", "default"]


@pytest.fixture
def run(capsys):
    """Runs the command line; returns exit code, standard output and standard error."""

    def runner(*argv):
        try:
            main(list(argv))
            code = 0
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        return code, out, err

    return runner


def record(policy=None, algorithm=None, names=FOUR):
    return RunRecord(
        policy=Part(names[0], names[1], None, None, policy or {}),
        algorithm=Part(names[2], names[3], None, None, algorithm or {}),
        run={},
        seed=1,
        versions={},
        command=[],
    )


@pytest.mark.parametrize("argv", [[], ["dummy-policy", "default"], PPO], ids=lambda argv: " ".join(argv) or "nothing")
def test_help_imports_no_torch_no_tensorboard_and_no_matplotlib(argv):
    """Lesson 23: help answers at once."""
    script = (
        "import sys\n"
        "from plugrl_server.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'tensorboard', 'matplotlib'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *argv, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: plugrl-run-server" in done.stdout


@pytest.mark.parametrize(
    ("argv", "code"), [(["--help"], 0), ([], 2), (["dummy-policy", "default", "--help"], 0), (["dummy-policy"], 2)]
)
def test_too_few_names_list_what_can_come_next(run, argv, code):
    ended, out, _ = run(*argv)
    assert ended == code
    assert "<variant>" in out
    assert "dummy" in out


def test_help_of_four_names_lists_every_flag(run):
    code, out, _ = run(*PPO, "--help")
    assert code == 0
    for flag in FLAGS.split():
        assert flag in out
    assert "--policy.action-space" not in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["dumy-policy"], "error: no policy is named 'dumy-policy'; did you mean dummy-policy?"),
        ([*FOUR, "--port", "70000"], "error: --port: expected 0 to 65535, got 70000"),
        ([*FOUR, "--port", "eighty"], "--port"),
        ([*FOUR, "--prot", "1"], "Perhaps you meant"),
        ([*FOUR, "stray"], "stray"),
        ([*FOUR, "--exp-name", "a/b"], "error: --exp-name: expected a plain folder name"),
        ([*FOUR, "--feedback-wait-timeout", "nan"], "error: --feedback-wait-timeout: expected a finite number above 0"),
        ([*FOUR, "--resume"], "error: --resume needs --exp-name; the latest runs there: none"),
        ([*FOUR, "--algo.learn-every", "0"], "--algo.learn-every 0: must be at least 1"),
        ([*FOUR, "--policy.action-dim", "0"], "--policy.action-dim 0: must be at least 1"),
        ([*FOUR, "--import", "no_such_module"], "error: --import no_such_module: ModuleNotFoundError"),
        (
            ["sac-policy", "default", "sac", "default", "--algo.concurrent", "--deterministic", "2"],
            "error: --deterministic 2: with --algo.concurrent the age of the weights that act depends on the clock",
        ),
        ([*FOUR, "--track.wandb"], "error: --track.wandb needs the package wandb, which is not installed: pip install"),
        (["gaussian-policy", "default", "ppo", "default", "--algo.buffer-size", "999999"], "--algo.buffer-size"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_a_mistake_on_the_command_line_is_told_in_words_and_leaves_nothing(run, argv, words, tmp_path, monkeypatch):
    """Lessons 6, 8, 25 and 28: exit code 2, no traceback, no folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, _, err = run(*argv)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_pair_that_cannot_work_is_refused_with_the_table(run, tmp_path, monkeypatch):
    """Lesson 24."""
    monkeypatch.chdir(tmp_path)
    code, _, err = run("dummy-policy", "default", "ppo", "default")
    assert code == 2
    assert "ppo does not work with dummy-policy. Pairs that work:" in err
    assert list(tmp_path.iterdir()) == []


def test_the_flags_reach_the_three_configurations():
    config, selection = parse(split(["--port", "0", *FOUR, "--algo.global-steps", "5", "--policy.action-horizon", "2"]))
    assert config.port == 0
    assert isinstance(selection, Selection)
    assert (selection.algo_config.global_steps, selection.policy_config.action_horizon) == (5, 2)
    assert (selection.policy_uid, selection.policy_variant, selection.algo_uid, selection.algo_variant) == tuple(FOUR)


def test_a_resumed_runs_values_are_the_defaults_and_flags_go_before_them():
    """Lesson 22."""
    saved = record(algorithm={"global_steps": 77, "learn_every": 5}, policy={"action_horizon": 9})
    _, selection = parse(split([*FOUR, "--resume", "--exp-name", "x", "--algo.learn-every", "6"]), saved)
    assert selection.algo_config.global_steps == 77
    assert selection.algo_config.learn_every == 6
    assert selection.policy_config.action_horizon == 9


def test_a_resumed_run_keeps_the_flags_of_the_run_too():
    """Lesson 22. Address, key and clients are said anew."""
    first, _ = parse(
        split(
            [
                *(
                    *FOUR,
                    "--exp-name",
                    "x",
                    "--keep-checkpoints",
                    "2",
                    "--deterministic",
                    "3",
                    "--metadata",
                    "team=red",
                ),
                *("--track.project", "mine", "--spin-us", "7", "--show-metric-table", "--log-level", "warning"),
                *("--port", "1234", "--client", "true"),
            ]
        )
    )
    saved = dataclasses.replace(record(), run=json.loads(json.dumps(first.public())))
    again = [*FOUR, "--resume", "--exp-name", "x"]
    config, _ = parse(split(again), saved)
    assert config == dataclasses.replace(first, resume=True, port=8000, client=())
    config, _ = parse(
        split([*again, "--keep-checkpoints", "4", "--deterministic", "none", "--metadata", "team=red"]), saved
    )
    assert (config.keep_checkpoints, config.deterministic, config.metadata) == (4, None, ("team=red",))


def test_a_run_is_not_resumed_as_another_one():
    """Lesson 22."""
    other = record(names=["dummy-policy", "default", "ppo", "pendulum"])
    with pytest.raises(UsageError, match="that run is dummy-policy default ppo pendulum, not dummy-policy default dum"):
        parse(split([*FOUR, "--resume", "--exp-name", "x"]), other)


EVAL = ["dummy-policy", "default", "eval", "default"]


@pytest.fixture
def trained(tmp_path):
    """A run folder of a dummy policy, with a checkpoint."""
    box = BoxSpace((3,), np.dtype("f4"), np.full(3, -1, "f4"), np.full(3, 1, "f4"))
    saved = dataclasses.replace(record(policy={"action_horizon": 9, "action_dim": 3}), declaration=Declaration(box))
    (tmp_path / "config.json").write_text(json.dumps(saved.to_json()))
    CheckpointManager(tmp_path / "checkpoints").save(Checkpoint(step=4))
    return tmp_path


def started(monkeypatch, *argv):
    """The selection and the words that a command line starts a run with."""
    taken = []
    monkeypatch.setattr("plugrl_server.run.start", lambda *given: taken.append(given) or 0)
    main(list(argv))
    return taken[0][1], taken[0][3]


def test_a_trained_policys_configuration_is_the_default_where_it_is_measured(trained, monkeypatch):
    chosen, _ = started(monkeypatch, *EVAL, "--algo.policy-checkpoint-path", str(trained), "--policy.action-dim", "2")
    assert (chosen.policy_config.action_horizon, chosen.policy_config.action_dim) == (9, 2)
    assert chosen.policy_config.action_space.shape == (3,)
    assert chosen.algo_config.policy_checkpoint_path == trained


def test_a_policy_of_another_name_is_not_measured(run, trained):
    other = ["gaussian-policy", "default", "eval", "default", "--algo.policy-checkpoint-path", str(trained)]
    code, _, err = run(*other)
    assert code == 2
    assert "that run trained dummy-policy default, not gaussian-policy" in err


def test_a_policys_key_is_in_no_word_that_is_written(monkeypatch):
    names = ["openpi-policy", "default", "eval", "default"]
    chosen, words = started(monkeypatch, *names, "--policy.openpi-api-key", "sesame")
    assert chosen.policy_config.openpi_api_key == "sesame"
    assert words == (["plugrl-run-server"], [*names, "--policy.openpi-api-key", "***"])


def test_a_configuration_with_required_fields_has_required_flags(run):
    from plugrl_server.algorithm.registration import register_algo_config

    @register_algo_config("needs-a-value")
    @dataclasses.dataclass
    class Config:
        rate: float

    try:
        _, selection = parse(split(["dummy-policy", "default", "needs-a-value", "default", "--algo.rate", "0.5"]))
        assert selection.algo_config.rate == 0.5
        code, _, err = run("dummy-policy", "default", "needs-a-value", "default")
        assert code == 2
        assert "--algo.rate" in err
    finally:
        del ALGORITHMS._entries["needs-a-value"]


@pytest.mark.parametrize("word", ["none", "None"])
@pytest.mark.parametrize("uid", ALGORITHMS.variants())
def test_none_is_read_wherever_an_algorithm_says_so(uid, word):
    """`must be at least 1, or none`, `none: never`: what is advised has to parse."""
    of_algorithm = config_classes([*FOUR[:2], uid, "default"])[1]
    hints = typing.get_type_hints(of_algorithm)
    optional = [name for name, hint in hints.items() if type(None) in typing.get_args(hint) and name != "policies"]
    assert "global_steps" in optional
    flags = [word_ for name in optional for word_ in (f"--algo.{name.replace('_', '-')}", word)]
    _, selection = parse(split([*FOUR[:2], uid, "default", "--torch-threads", word, *flags]))
    assert {getattr(selection.algo_config, name) for name in optional} == {None}


def test_ctrl_c_before_the_start_is_no_traceback(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("plugrl_server.cli.split", interrupt)
    assert run(*FOUR) == (130, "", "interrupted\n")
