"""README and docs/: links, the list of pages, and the page of config fields."""

import doctest
import re
from pathlib import Path

import pytest

from experiments.pages import config_page
from tests import documented

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def anchors(text):
    """A page's headings, as GitHub and mkdocs name them."""
    titles = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", documented.PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_file(), target
        assert not anchor or anchor in anchors(found.read_text("utf-8")), target


@pytest.mark.slow
def test_page_of_fields_is_fresh():
    written = config_page.PAGE.read_text("utf-8")
    assert written == config_page.page(), "run: python -m experiments.pages.config_page"


def test_pages_are_all_listed():
    listed = (ROOT / "mkdocs.yml").read_text("utf-8")
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for page in PAGES:
        assert f" {page.name}\n" in listed
        assert page.name == "index.md" or f"]({page.name})" in index


def test_experiments_page_names_commands_that_are_there():
    text = (ROOT / "experiments" / "README.md").read_text("utf-8")
    named = re.findall(r"`(\w+\.\w+)`", text)
    commands = [name for name in named if not name.endswith(".txt")]
    assert len(commands) > 10
    named_here = {"experiments.paper", *(f"experiments.{name}" for name in commands)}
    assert named_here == {*documented.experiments()} - {*documented.STARTED}
    results = ROOT / "experiments" / "results"
    files = [name for name in named if name.endswith(".txt")]
    assert not [name for name in files if not (results / name).exists()]


def test_command_has_one_answer_on_all_pages():
    """`$ COMMAND` and its output: the same everywhere that it is shown."""
    answers: dict[str, set[str]] = {}
    shown = re.compile(
        r"(?m)^\$ ((?:.*(?:\\|\|)\n)*.*)\n((?:(?!\$ ).*\n)*?)(?=```|\$ |\Z)"
    )
    for page in (ROOT / "README.md", *PAGES):
        for block in re.findall(r"(?ms)^```\n(\$ .*?)^```", page.read_text("utf-8")):
            for command, answer in shown.findall(block):
                answers.setdefault(" ".join(command.split()), set()).add(answer)
    asked = [command for command in answers if "--mode=predict" in command]
    assert asked and all(len(answers[command]) == 1 for command in answers), answers


def test_tokenizer_alone(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "weights.md").read_text("utf-8")
    (block,) = re.findall(r"(?s)```python\n(>>> .*?)```", text)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    example = parser.get_doctest(block, {}, "weights.md", "weights.md", 0)
    assert runner.run(example) == doctest.TestResults(0, 10)
