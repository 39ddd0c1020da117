"""Every page of the site exists in English and in Chinese, with the same structure and the same commands."""

import re

import pytest

from tests.docs import pages

ENGLISH = [page for page in pages.site_pages() if not page.name.endswith(".zh.md")]
CHINESE = [page for page in pages.site_pages() if page.name.endswith(".zh.md")]


def twin(page):
    return page.with_name(page.name.replace(".md", ".zh.md"))


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.stem)
def test_a_page_and_its_twin_have_the_same_shape(page):
    english, chinese = page.read_text(), twin(page).read_text()
    assert pages.headings(english) == pages.headings(chinese)
    assert table_rows(english) == table_rows(chinese)
    assert pages.links(english) == pages.links(chinese)


@pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.stem)
def test_a_page_and_its_twin_show_the_same_code(page):
    def code(text):
        return [(block.language, block.body) for block in pages.blocks(text) if block.language not in {"", "text"}]

    assert code(page.read_text()) == code(twin(page).read_text())


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.stem)
def test_a_chinese_page_is_written_in_chinese_and_has_an_english_one(page):
    assert page.with_name(page.name.replace(".zh.md", ".md")) in ENGLISH
    prose = "".join(pages.prose(page.read_text()))
    assert len(re.findall(r"[\u4e00-\u9fff]", prose)) > 100


def table_rows(text):
    return sum(line.startswith("|") for line in pages.prose(text))
