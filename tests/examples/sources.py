"""The examples of algorithms and policies of one's own: imported by path, and as their reader would install them."""

import copy
import importlib.util
import shutil
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

from plugrl_server.algorithm.registration import ALGORITHMS
from plugrl_server.policy.registration import POLICIES

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def load(folder, module):
    """The module of an example, imported once."""
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, EXAMPLES / folder / f"{module}.py")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def load_sac():
    """The module of the server's SAC example; the built-in that it replaces stays what other tests find."""
    folder = str(ROOT / "plugrl-server" / "examples" / "sac")
    with forgotten_registrations():
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("sac")
        finally:
            sys.path.remove(folder)


@contextmanager
def forgotten_registrations():
    """Forgets afterwards what was registered inside."""
    before = {registry: copy.deepcopy(registry._entries) for registry in (ALGORITHMS, POLICIES)}
    yield
    for registry, entries in before.items():
        registry._entries = entries


def install(folder, target):
    """What installing an example leaves in a folder of packages: its module, and the entry points it declares.

    Written by hand, because building a wheel would fetch a build backend.
    """
    project = tomllib.loads((EXAMPLES / folder / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    info = target / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"]
    sections = (
        f"[{group}]\n" + "".join(f"{uid} = {module}\n" for uid, module in points.items())
        for group, points in groups.items()
    )
    (info / "entry_points.txt").write_text("\n".join(sections))
    for module in {module for points in groups.values() for module in points.values()}:
        shutil.copy(EXAMPLES / folder / f"{module}.py", target)
    return target
