"""The reader of Markdown sees what a person sees."""

from pathlib import Path

from tests.docs import pages

PAGE = """# Title

A [link](other.md#part) and a [site](https://example.org).

```bash
# a comment
one --flag "two words" && two | three
four \\
    --five
```

```python
# not a heading
```

## Part
"""


def test_commands_are_split_joined_and_numbered(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = [(command.line, command.argv) for command in pages.commands(page)]
    assert found == [
        (7, ("one", "--flag", "two words")),
        (7, ("two",)),
        (7, ("three",)),
        (8, ("four", "--five")),
    ]


def test_headings_and_links_are_read_outside_fences():
    assert pages.headings(PAGE) == ["#", "##"]
    assert pages.links(PAGE) == ["other.md#part", "https://example.org"]


def test_blocks_keep_their_language_and_place():
    assert [(block.language, block.line) for block in pages.blocks(PAGE)] == [("bash", 6), ("python", 13)]


def test_every_page_of_the_site_is_read():
    names = {page.name for page in pages.site_pages()}
    assert {"index.md", "index.zh.md", "get-started.md", "cli.md"} <= names
    assert Path("README.md") in {page.relative_to(pages.ROOT) for page in pages.all_pages()}
