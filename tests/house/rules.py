"""The house rules of ARCHITECTURE.md as functions: each takes a checkout's root and returns what breaks the rule.

Standard library only. `test_house.py` holds them against this repository, `test_rules.py` against broken examples.
"""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_MODULES_IN_FOLDER = 8
VAGUE_NAMES = {"util", "utils", "misc", "helper", "helpers", "common_utils", "stuff", "tools"}
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
# Paths of one machine, and package registries by the shape of their names: the rule itself must name none.
PRIVATE_PLACES = re.compile(r"(/(?:root|work|home/\w+)/|\bpy(?!thon\.)[a-z]+\.org\b|\bregistry\.[a-z]+js\b)")
CAPPED = re.compile(r"(<|==|~=|!=)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def packages(root: Path) -> list[Path]:
    """The import packages of the workspace's members: `<member>/src/<package>`."""
    return sorted(folder for folder in root.glob("*/src/*") if (folder / "__init__.py").exists())


def modules(root: Path) -> list[Path]:
    """Every module of every package."""
    return [path for package in packages(root) for path in sorted(package.rglob("*.py"))]


def long_files(root: Path) -> list[str]:
    """Modules over 400 lines."""
    sized = ((path, len(path.read_text().splitlines())) for path in modules(root))
    return [f"{_name(path, root)}: {lines} lines" for path, lines in sized if lines > MAX_FILE_LINES]


def long_functions(root: Path) -> list[str]:
    """Functions over 50 lines, docstring not counted."""
    found = []
    for path, tree in _trees(root):
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            lines = _code_lines(function)
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{_name(path, root)}:{function.lineno} {function.name}: {lines} lines")
    return found


def crowded_folders(root: Path) -> list[str]:
    """Folders with more than 8 modules (`__init__.py` and `__main__.py` aside)."""
    counts: dict[Path, int] = {}
    for path in modules(root):
        if not path.stem.startswith("__"):
            counts[path.parent] = counts.get(path.parent, 0) + 1
    return [f"{_name(folder, root)}: {n} modules" for folder, n in counts.items() if n > MAX_MODULES_IN_FOLDER]


def vague_names(root: Path) -> list[str]:
    """Modules and folders named after nothing they hold."""
    places = {part for path in modules(root) for part in (path, path.parent)}
    return sorted(_name(place, root) for place in places if place.stem in VAGUE_NAMES)


def untested_modules(root: Path) -> list[str]:
    """Modules without a test file of their own: `src/<package>/a/b.py` is tested by `tests/a/test_b.py`."""
    found = []
    for package in packages(root):
        tests = package.parents[1] / "tests"
        for path in sorted(package.rglob("*.py")):
            inside = path.relative_to(package)
            if not path.stem.startswith("__") and not (tests / inside.parent / f"test_{path.name}").exists():
                found.append(_name(path, root))
    return found


def root_imports(root: Path) -> list[str]:
    """Modules that import their own package's root, which would tie every module to every other."""
    found = []
    for package in packages(root):
        for path in (path for path in sorted(package.rglob("*.py")) if path != package / "__init__.py"):
            depth = len(path.relative_to(package).parts)
            nodes = ast.walk(ast.parse(path.read_text()))
            found += [f"{_name(path, root)}:{node.lineno}" for node in nodes if _names_root(node, package, depth)]
    return found


def undocumented(root: Path) -> list[str]:
    """Public modules, classes, functions and methods without a docstring."""
    found = []
    for path, tree in _trees(root):
        if ast.get_docstring(tree) is None:
            found.append(_name(path, root))
        found += [
            f"{_name(path, root)}:{node.lineno} {node.name}"
            for node in _public(tree)
            if ast.get_docstring(node) is None
        ]
    return found


def leftovers(root: Path) -> list[str]:
    """Marks of unfinished work in what the packages and examples ship."""
    paths = [*modules(root), *sorted(root.glob("examples/**/*.py")), *sorted(root.glob("*/examples/**/*.py"))]
    return [f"{_name(path, root)}:{number} {match}" for path in paths for number, match in _matches(path, LEFTOVERS)]


def private_places(root: Path, tracked: list[Path]) -> list[str]:
    """Tracked text files that name somebody's machine or a package registry's host."""
    texts = [path for path in tracked if path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".json", ""}]
    found = []
    for path in texts:
        found += [f"{_name(path, root)}:{number} {match}" for number, match in _matches(path, PRIVATE_PLACES)]
    return found


def narrow_ranges(root: Path) -> list[str]:
    """Dependencies of a member that cap or pin a version: an application could not combine them with its own."""
    found = []
    for path in sorted(root.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        listed = list(
            itertools.chain(project.get("dependencies", []), *project.get("optional-dependencies", {}).values())
        )
        if "<" in project["requires-python"]:
            found.append(f"{_name(path, root)}: requires-python {project['requires-python']}")
        for requirement in listed:
            own = re.match(r"plugrl[\w-]*(\[|$)", requirement)
            versions = requirement.split(";")[0]
            if CAPPED.search(versions) or (not own and ">=" not in versions):
                found.append(f"{_name(path, root)}: {requirement}")
    return found


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _trees(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    return ((path, ast.parse(path.read_text())) for path in modules(root))


def _code_lines(function: Function) -> int:
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def _names_root(node: ast.AST, package: Path, depth: int) -> bool:
    """Whether an import takes something from the root itself; `from <root> import <module>` takes a module."""
    if isinstance(node, ast.Import):
        return any(alias.name == package.name for alias in node.names)
    if not isinstance(node, ast.ImportFrom):
        return False
    from_root = node.module == package.name if node.level == 0 else node.level == depth and node.module is None
    return from_root and not all(_is_module(package / alias.name) for alias in node.names)


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").exists()


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | Function]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            if not _repeats_a_docstring(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)


def _repeats_a_docstring(node: ast.ClassDef | Function) -> bool:
    """An override, an overload or a property's setter is described where its name was first defined."""
    marks = {ast.unparse(mark).rsplit(".", 1)[-1] for mark in node.decorator_list}
    return bool(marks & {"override", "overload", "setter"})


def _matches(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = pattern.search(line)
        if match:
            yield number, match.group()
