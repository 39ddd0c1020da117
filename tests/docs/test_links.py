"""Every file and heading that a page links to, and every path in ARCHITECTURE.md's index, exists."""

import re

import pytest

from tests.docs import pages

PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")


def anchors(page):
    """The ids of a page's headings, as MkDocs and GitHub make them for plain words."""
    titles = [match[2] for line in pages.prose(page.read_text()) if (match := pages.HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages.all_pages(), ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_a_page_links_only_to_what_exists(page):
    for link in pages.links(page.read_text()):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} does not exist"
        assert target.is_relative_to(pages.ROOT)
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def architecture_paths():
    text = (pages.ROOT / "ARCHITECTURE.md").read_text()
    index = text.split("## Where is it?")[1]
    return sorted({path for path in PATH.findall(index) if "/" in path})


def test_the_index_names_many_paths():
    assert len(architecture_paths()) > 30


@pytest.mark.parametrize("path", architecture_paths())
def test_every_path_of_the_index_exists(path):
    assert (pages.ROOT / path).exists()
