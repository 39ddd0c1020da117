"""The C++ file needs nothing but a compiler; the Python files run on 3.10 and import nothing of ours."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.processes import CPP_SOURCE, EXAMPLES, load

PYTHON = ("raw_client", "reference_server")
RUNTIMES = {"linux-vdso", "ld-linux", "libc", "libm", "libgcc_s", "libstdc++", "libpthread"}


def test_links_only_the_runtimes(cpp_binary: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("ldd is Linux's")
    listed = subprocess.run(["ldd", cpp_binary], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name for line in listed.splitlines()}
    assert {name.split(".so")[0].removesuffix("-x86-64").removesuffix("-aarch64") for name in names} <= RUNTIMES


def test_includes_only_the_standard_library_and_posix() -> None:
    included = [line.split()[1] for line in CPP_SOURCE.read_text().splitlines() if line.startswith("#include")]
    assert not [name for name in included if not name.startswith("<")]
    posix = {"fcntl.h", "netdb.h", "netinet/in.h", "netinet/tcp.h", "poll.h", "sys/socket.h", "unistd.h"}
    assert {name.strip("<>") for name in included if name.endswith(".h>")} == posix


def test_stays_within_120_columns() -> None:
    assert not [line for line in CPP_SOURCE.read_text().splitlines() if len(line) > 120]


@pytest.mark.parametrize("name", PYTHON)
def test_imports_only_what_it_says(name: str) -> None:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    outside = {module.split(".")[0] for module in imported} - sys.stdlib_module_names
    assert outside <= {"msgpack", "websockets", "raw_client"}


@pytest.mark.parametrize("name", PYTHON)
def test_is_python_3_10(name: str) -> None:
    command = [str(Path(sys.executable).with_name("vermin")), "--quiet", "--no-tips", "--violations", "-t=3.10-"]
    done = subprocess.run([*command, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_is_found_beside_the_protocol_too() -> None:
    assert (EXAMPLES.parent / "plugrl-protocol" / "examples").resolve() == EXAMPLES.resolve()


def test_readme_names_every_bug() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    for name in PYTHON:
        for bug, what in load(name).BUGS.items():
            assert f"| `{bug}` | {what.split(':')[0]} |" in readme
