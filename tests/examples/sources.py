"""The examples of algorithms and policies of one's own: imported by path, and as their reader would install them."""

import importlib.util
import shutil
import sys
import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(folder, module):
    """The module of an example, imported once."""
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, EXAMPLES / folder / f"{module}.py")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


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
