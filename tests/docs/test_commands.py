"""Every command that the pages show is run, or parsed by the program it is for: a flag that is wrong fails here."""

import ast
import contextlib
import io
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import tyro
from plugrl_env_client import cli as client_cli
from plugrl_env_client.options import options_type, reading_none
from plugrl_env_client.recording.recorder_options import RecordingError
from plugrl_env_client.registration import BUILT_IN, env_config
from plugrl_protocol.conformance import cli as conformance_cli
from plugrl_server import assembly
from plugrl_server import cli as server_cli
from plugrl_server.algorithm.registration import list_algos
from plugrl_server.policy.registration import POLICIES
from plugrl_server.run_config import UsageError
from plugrl_server.selecting import check_names, split

from tests.docs import pages
from tests.examples import sources

COMMANDS = [command for page in pages.all_pages() for command in pages.commands(page)]
SERVER, CLIENT = "plugrl-run-server", "plugrl-run-env-client"
UV_VALUES = {"--extra", "--group", "--only-group", "--package", "--with", "--with-editable"}
UV_SWITCHES = {"--isolated", "--no-project"}


@pytest.fixture(autouse=True, scope="module")
def examples():
    """What the examples' READMEs import from their own folder."""
    sources.load("custom_algorithm", "spo")
    sources.load("custom_policy", "beta_policy")
    sources.load("custom_env", "goto")


@pytest.fixture(autouse=True, scope="module")
def your_algo():
    """What the pages call `your-algo`: registered, as the reader's own module would do."""
    if "your-algo" not in list_algos():
        from tests.end_to_end.plugins.my_pkg import plugrl_algorithms

        assert plugrl_algorithms.UID == "your-algo"


@pytest.fixture(autouse=True, scope="module")
def robot():
    """What the pages call `robot-v1`."""
    from tests.end_to_end.plugins.my_pkg import robot

    assert robot.Robot


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_shown_command_is_right(command):
    check(list(command.argv))


def test_the_pages_show_commands():
    programs = [program(list(command.argv))[0] for command in COMMANDS]
    assert programs.count(SERVER) > 10
    assert programs.count(CLIENT) > 5


@pytest.mark.parametrize("page", ["overview.md", "overview.zh.md"])
def test_the_page_of_environments_shows_the_commands_that_the_listing_does(page):
    text = (pages.ROOT / "docs/environments" / page).read_text()
    assert [family.uid for family in BUILT_IN.values() if family.also and family.install_command not in text] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "plugrl-run-server gaussian-policy default ppo default --prot 1",
        "plugrl-run-server gaussian-policy default ppo default --port many",
        "plugrl-run-server gaussian-policy default po default",
        "uv run plugrl-run-server sac default ppo default",
        "uv run plugrl-run-env-client classic-v1 --env.nam CartPole-v1",
        "plugrl-run-env-client klassik-v1",
        'plugrl-run-server dummy-policy default dummy default --client "plugrl-run-env-client dummy-v1 --envs 2"',
        "uv run --extra nothing plugrl-run-server --help",
        "uv run pytest no/such/folder",
        "make train",
        "pip install .",  # in uv's environment it is another Python's pip
    ],
)
def test_a_wrong_command_is_noticed(wrong):
    with pytest.raises((AssertionError, SystemExit, ValueError, UsageError)), quiet():
        check(shlex.split(wrong))


def check(argv):
    """Raise when a command of a page would not do what the page says."""
    name, *arguments = program(argv)
    assert name in CHECKS, f"{name}: teach tests/docs this program, or leave it out of the pages"
    with quiet():
        CHECKS[name](arguments)


def program(argv):
    """The program that a command runs, without `uv run` and its options."""
    if argv[:2] != ["uv", "run"]:
        return argv
    rest = argv[2:]
    while rest[0].startswith("-"):
        if rest[0] in UV_SWITCHES:
            rest = rest[1:]
            continue
        option, value = rest[0], rest[1] if rest[0] in UV_VALUES else None
        assert option in UV_VALUES, f"uv run {option}"
        if option in {"--extra", "--group", "--only-group"}:
            assert value in EXTRAS_AND_GROUPS, f"uv run {option} {value}"
        rest = rest[2:]
    return rest


def check_server(arguments):
    words = split(arguments)
    check_names(words.names)
    if len(words.names) < 4 or words.wants_help:
        assert exit_code(server_cli.main, arguments) == 0
        return
    config, selection = server_cli.parse(words)
    if words.names[0] in POLICIES.missing_extras():  # what the page installs for the command, this environment lacks
        selection.policy_config.check()
    else:
        assembly.check(selection)
    for command in config.client:
        check(shlex.split(command))


def check_client(arguments):
    if not arguments or "--help" in arguments:
        assert exit_code(client_cli.main, arguments) == 0
        return
    (family, *flags), _ = client_cli._take_imports(arguments)
    with reading_none():
        options = tyro.cli(options_type(env_config(family)), args=flags)
    try:
        options.check()
    except RecordingError as err:
        if "needs the extra" not in str(err):  # what the page installs for the command, this environment lacks
            raise


def exit_code(main, arguments):
    """What a program's `main` leaves with, by return or by SystemExit; None is 0, as for the interpreter."""
    try:
        return main(arguments) or 0
    except SystemExit as ended:
        return ended.code or 0


def check_python(arguments):
    """`-c CODE` compiles; what it hands to the server's `main()` is checked as the server's command line."""
    if arguments[0].endswith(".py"):
        check_example(arguments[0])(arguments[1:])
        return
    assert arguments[0] == "-c", "the pages run only `python -c` and our scripts"
    tree = ast.parse(arguments[1])
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    if "main" in names:
        check_server(arguments[2:])
    else:
        assert arguments[2:] == []


def check_pytest(arguments):
    for argument in arguments:
        assert argument.startswith("-") or (pages.ROOT / argument).exists(), argument


def check_script(arguments):
    assert (pages.ROOT / arguments[0]).exists(), arguments[0]


def check_example(path):
    """One of our scripts or programs: its source is there, and knows every flag and every file it is given."""

    def look(arguments):
        source = pages.ROOT / path
        for argument in arguments:
            if argument.startswith("--"):
                assert f'"{argument}"' in source.read_text(), f"{path} has no {argument}"
            elif "/" in argument:
                assert (pages.ROOT / argument).exists(), argument
        assert source.exists(), path

    return look


def check_compiler(arguments):
    """`g++` is given a source file that exists."""
    sources = [argument for argument in arguments if argument.endswith(".cpp")]
    assert sources
    assert all((pages.ROOT / source).exists() for source in sources)


def check_conformance(parser):
    """A checker's command line is parsed; the peer that it starts is checked as a command of its own."""

    def look(arguments):
        parsed = parser().parse_args(arguments)
        for peer in (getattr(parsed, "client", None), getattr(parsed, "server", None)):
            if peer is not None:
                check(program(shlex.split(peer)))

    return look


def check_installed(name, allowed):
    """A program of the workspace's environment, used in one of the ways that CI uses, too."""

    def look(arguments):
        assert name in {"pip", "uv", "mkdocs"} or (Path(sys.executable).parent / name).exists(), name
        assert arguments in allowed, f"{name} {shlex.join(arguments)}"

    return look


WORKSPACE = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())
EXTRAS_AND_GROUPS = {*WORKSPACE["project"]["optional-dependencies"], *WORKSPACE["dependency-groups"]}
CHECKS = {
    SERVER: check_server,
    CLIENT: check_client,
    "plugrl-conformance": check_conformance(conformance_cli._client_parser),
    "plugrl-conformance-server": check_conformance(conformance_cli._server_parser),
    "g++": check_compiler,
    "/tmp/plugrl_client": check_example("examples/plugrl_client.cpp"),
    "./my_client": lambda arguments: None,  # the reader's own
    "python": check_python,
    "pytest": check_pytest,
    "bash": check_script,
    "pip": check_installed("pip", [["install", "uv"], ["install", "./plugrl-protocol", "./plugrl-env-client"]]),
    "uv": check_installed("uv", [["pip", "install", "."]]),
    "ruff": check_installed("ruff", [["check"], ["format"]]),
    "mypy": check_installed("mypy", [[]]),
    "lint-imports": check_installed("lint-imports", [[]]),
    "mkdocs": check_installed("mkdocs", [["build", "--strict"]]),
    "pre-commit": check_installed("pre-commit", [["install"]]),
    "tensorboard": check_installed("tensorboard", [["--logdir", "checkpoints"]]),
}


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
