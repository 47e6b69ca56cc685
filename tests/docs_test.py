"""README and docs/: links, the list of pages, and the page of config fields."""

import re
from pathlib import Path

import pytest

from bert_jax.config import help
from bert_jax.errors import UserError
from experiments import config_page, started

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def anchors(text):
    """A page's headings, as GitHub and mkdocs name them."""
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_file(), target
        assert not anchor or anchor in anchors(found.read_text("utf-8")), target


def test_the_page_of_fields_is_fresh():
    written = config_page.PAGE.read_text("utf-8")
    assert written == config_page.page(), "run: python -m experiments.config_page"


def test_a_field_without_a_comment_is_named(monkeypatch):
    monkeypatch.setattr(help, "comments_of", lambda path: {})
    with pytest.raises(UserError, match=r"no comment says what \w+\.\w+ does"):
        config_page.page()


def test_every_page_is_listed():
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in PAGES:
        assert f" {page.name}\n" in listed
        assert page.name == "index.md" or f"]({page.name})" in index


def test_readme_names_the_commands_that_need_matplotlib():
    asks = re.compile(r'"matplotlib"|compare_page')  # if it is there, or the page
    need = {
        name
        for name, path in started.modules().items()
        if asks.search(path.read_text("utf-8"))
    }
    readme = (ROOT / "README.md").read_text("utf-8")
    (paragraph,) = re.findall(r"(?m)^Plots need matplotlib(?:.+\n)+", readme)
    named = set(re.findall(r"`(experiments\.\w+)`", paragraph))
    assert named == need.intersection(started.commands())
