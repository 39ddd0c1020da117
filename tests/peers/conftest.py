"""The C++ client and its harness, compiled once a session; and both clients as a parameter."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.processes import CPP_SOURCE, Client, raw_client

HARNESS_SOURCE = Path(__file__).parent / "harness.cpp"
STRICT = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZED = ("-std=c++17", "-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

Compilers = dict[str, tuple[Path, subprocess.Popen[str]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The C++ client's tests come last: by then it is compiled."""
    items.sort(key=lambda item: "plugrl_client" in item.name or not {"cpp_binary", "harness"}.isdisjoint(_needs(item)))


def _needs(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


@pytest.fixture(scope="session", autouse=True)
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compilers]:
    """Two compilers, at work while the first tests of the Python peers run."""
    if shutil.which("g++") is None:
        yield {}
        return
    folder = tmp_path_factory.mktemp("peers")
    sources = {"plugrl_client": (STRICT, CPP_SOURCE), "harness": (SANITIZED, HARNESS_SOURCE)}
    started: Compilers = {}
    for name, (flags, source) in sources.items():
        command = ["g++", *flags, "-o", str(folder / name), str(source)]
        started[name] = (folder / name, subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    yield started
    for _, process in started.values():
        if process.returncode is None:
            process.communicate()


def _compiled(compilers: Compilers, name: str) -> Path:
    if not compilers:
        pytest.skip("g++ is not installed: the C++ client cannot be compiled")
    binary, process = compilers[name]
    if process.returncode is None:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    return binary


@pytest.fixture(scope="session")
def cpp_binary(compilers: Compilers) -> Path:
    """The client, compiled without a warning."""
    return _compiled(compilers, "plugrl_client")


@pytest.fixture(scope="session")
def harness(compilers: Compilers) -> Path:
    """The client under AddressSanitizer and UBSan, with the test's own main."""
    return _compiled(compilers, "harness")


@pytest.fixture(params=["raw_client", "plugrl_client"])
def client(request: pytest.FixtureRequest) -> Client:
    """Each of the two clients."""
    if request.param == "raw_client":
        return raw_client()
    return Client("plugrl_client", (str(request.getfixturevalue("cpp_binary")),))
