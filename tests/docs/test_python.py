"""The Python that the pages show compiles, and every name that it imports is there."""

import ast

import pytest

from tests.docs import pages

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
    exec(compile(ast.Module(imports, []), "page", "exec"), names)
    assert imports
