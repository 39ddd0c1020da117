import dataclasses
import io
import sys

import pytest
from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.run_config import UsageError
from plugrl_server.selecting import PROGRAM, check_names, config_classes, import_modules, program, show_choices, split
from rich.console import Console

FOUR = ["dummy-policy", "default", "dummy", "default"]


@pytest.mark.parametrize(
    ("argv", "names", "flags"),
    [
        ([], (), ()),
        (["--help"], (), ("--help",)),
        (FOUR, tuple(FOUR), ()),
        ([*FOUR, "--algo.x", "1", "stray"], tuple(FOUR), ("--algo.x", "1", "stray")),
        (["--port", "0", *FOUR], tuple(FOUR), ("--port", "0")),
        (["dummy-policy", "--seed", "-1", *FOUR[1:]], tuple(FOUR), ("--seed", "-1")),
        (["--port=0", "--overwrite", *FOUR], tuple(FOUR), ("--port=0", "--overwrite")),
        (
            ["--no-show_progress_bar", "--exp_name", "x", *FOUR],
            tuple(FOUR),
            ("--no-show_progress_bar", "--exp_name", "x"),
        ),
        (["--track.wandb", "--track.project", "p", *FOUR], tuple(FOUR), ("--track.wandb", "--track.project", "p")),
        (["--client", "a b", "--client", "c", *FOUR], tuple(FOUR), ("--client", "a b", "--client", "c")),
        (["dummy-policy", "-h"], ("dummy-policy",), ("-h",)),
        (["--port"], (), ("--port",)),
    ],
)
def test_the_names_are_found_wherever_the_runs_own_flags_stand(argv, names, flags):
    words = split(argv)
    assert (words.names, words.flags) == (names, flags)
    assert words.wants_help == bool({"-h", "--help"} & set(argv))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--algo.gamma", "0.9", *FOUR], "--algo.gamma stands before the names are complete; put the flags of the"),
        (["--prot", "0", *FOUR], "--prot is no flag of the run; did you mean --port?"),
        (["--zzz", *FOUR], "--zzz is no flag of the run"),
    ],
)
def test_a_flag_that_cannot_be_told_from_a_name_is_refused(argv, words):
    with pytest.raises(UsageError) as caught:
        split(argv)
    assert str(caught.value).startswith(words)


def test_a_flag_of_policy_or_algorithm_with_its_value_attached_may_stand_anywhere():
    assert split(["--algo.gamma=0.9", *FOUR]).flags == ("--algo.gamma=0.9",)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gausian_policy"], "no policy is named 'gausian_policy'; did you mean gaussian-policy?\nthere are: "),
        (["dummy-policy", "defualt"], "no variant of dummy-policy is named 'defualt'; did you mean default?"),
        (["dummy-policy", "default", "PPO"], "no algorithm is named 'PPO'; did you mean ppo?"),
        (["dummy-policy", "default", "ppo", "zzz"], "no variant of ppo is named 'zzz'\nthere are: default"),
        (["zzz"], "no policy is named 'zzz'\nthere are: "),
    ],
)
def test_a_wrong_name_is_answered_with_close_ones(names, words):
    """Lesson 25: names are matched loosely and suggested, never taken."""
    with pytest.raises(UsageError) as caught:
        check_names(names)
    assert str(caught.value).startswith(words)


def test_right_names_give_their_configuration_classes():
    check_names(FOUR)
    policy, algorithm = config_classes(FOUR)
    assert (policy.__name__, algorithm.__name__) == ("DummyPolicyConfig", "DummyAlgoConfig")


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (
            [],
            ["usage: plugrl-run-server <policy> <variant> <algo> <variant> [flags]", "gaussian-policy", "dummy-policy"],
        ),
        (["dummy-policy"], ["usage: plugrl-run-server dummy-policy <variant> <algo> <variant>", "default"]),
        (["dummy-policy", "default"], ["ppo", "pendulum", "dummy", "algorithms to choose from"]),
        (["gaussian-policy", "default", "ppo"], ["variants of ppo", "pendulum", "gamma=0.9"]),
    ],
)
def test_what_can_come_next_is_listed(names, parts):
    screen = io.StringIO()
    show_choices(names, Console(file=screen, width=160))
    for part in parts:
        assert part in screen.getvalue()


def test_an_algorithm_that_needs_an_extra_stays_listed_with_the_install_command(monkeypatch):
    """Lesson 25."""
    builtin = dataclasses.replace(ALGORITHMS.builtins["ppo"], needs=("no_such_package",), extra="ppo")
    monkeypatch.setitem(ALGORITHMS.builtins, "ppo", builtin)
    screen = io.StringIO()
    show_choices(["dummy-policy", "default"], Console(file=screen, width=160))
    assert f"not installed: {builtin.install_command}" in screen.getvalue()


def test_modules_are_imported_from_the_current_folder_too(tmp_path, monkeypatch):
    (tmp_path / "my_side_effect.py").write_text("LOADED = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    import_modules(["--port", "0", "--import", "my_side_effect"])
    assert sys.modules.pop("my_side_effect").LOADED
    import_modules(["--import=my_side_effect"])
    assert sys.modules.pop("my_side_effect").LOADED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_thing", "--import broken_module: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise KeyError('Algorithm x is registered twice')", "--import broken_module: KeyError: Algorithm x is regis"),
        ("def", "--import broken_module: SyntaxError: "),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(code, words, tmp_path, monkeypatch):
    """Lesson 28."""
    (tmp_path / "broken_module.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UsageError) as caught:
        import_modules(["--import", "broken_module"])
    assert str(caught.value).startswith(words)


def test_a_missing_module_is_named():
    with pytest.raises(UsageError, match="--import no_such_module: ModuleNotFoundError: No module named"):
        import_modules(["--import", "no_such_module"])


@pytest.mark.parametrize(
    ("started", "words"),
    [
        (["/v/bin/python", f"/v/bin/{PROGRAM}"], [PROGRAM]),
        (["python", "examples/sac.py"], ["python", "examples/sac.py"]),
        (["python", "-c", "import mine; main()"], ["python", "-c", "import mine; main()"]),
        (["python", "-m", "mine"], ["python", "-m", "mine"]),
    ],
)
def test_the_program_is_named_as_it_was_started(started, words, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", [*started, *FOUR])
    monkeypatch.setattr(sys, "argv", [started[-1], *FOUR])
    assert program(None) == words
    assert program(FOUR) == [PROGRAM], "words that main was handed say nothing of how the process was started"
