"""The Python that the pages show compiles, and every name that it imports is there."""

import ast

import pytest

from tests.docs import pages

READERS = {"lerobot", "minari"}
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(pages.ROOT)}:{block.line}")
    for page in pages.all_pages()
    for block in pages.blocks(page.read_text())
    if block.language == "python"
]


@pytest.mark.parametrize("block", BLOCKS)
def test_shown_python_compiles_and_imports(block):
    tree = ast.parse(block.body)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {}
    try:
        exec(compile(ast.Module(imports, []), "page", "exec"), names)
    except ModuleNotFoundError as err:
        if err.name not in READERS:
            raise
        pytest.skip(f"{err.name} reads what we write, and is in no environment of ours")
    assert imports
