"""README and docs/: links, the list of pages, and the page of config fields."""

import doctest
import re
from pathlib import Path

import pytest

from bert_jax.config import help
from bert_jax.errors import UserError
from experiments.pages import config_page
from tests import documented

ROOT = Path(__file__).resolve().parent.parent
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
def test_the_page_of_fields_is_fresh():
    written = config_page.PAGE.read_text("utf-8")
    assert written == config_page.page(), "run: python -m experiments.pages.config_page"


def test_its_command_says_what_it_does_and_writes_nothing_at_a_mistake(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(config_page, "PAGE", tmp_path / "config.md")
    with pytest.raises(SystemExit) as ended:
        config_page.main(["--help"])
    assert ended.value.code == 0 and "docs/config.md" in capsys.readouterr().out
    assert config_page.main(["--page=x"]) == 2
    assert not list(tmp_path.iterdir())


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


def test_the_page_names_the_commands_that_need_matplotlib():
    asks = re.compile(r'"matplotlib"')  # if it is there
    need = {
        name
        for name, path in documented.experiments().items()
        if asks.search(path.read_text("utf-8"))
    }
    page = (ROOT / "docs" / "paper.md").read_text("utf-8")
    (paragraph,) = re.findall(r"(?m)^Plots need matplotlib(?:.+\n)+", page)
    named = set(re.findall(r"`(experiments\.[\w.]+)`", paragraph))
    assert named == need


def test_the_experiments_page_names_commands_that_are_there():
    text = (ROOT / "experiments" / "README.md").read_text("utf-8")
    named = re.findall(r"`(\w+\.\w+)`", text)
    commands = [name for name in named if not name.endswith(".txt")]
    assert len(commands) > 10
    named_here = {"experiments.paper", *(f"experiments.{name}" for name in commands)}
    assert named_here == {*documented.experiments()} - {*documented.STARTED}
    results = ROOT / "experiments" / "results"
    files = [name for name in named if name.endswith(".txt")]
    assert not [name for name in files if not (results / name).exists()]


def test_a_command_has_one_answer_on_all_pages():
    """`$ COMMAND` and what it prints: the same wherever it is shown."""
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


def test_the_tokenizer_alone(monkeypatch):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "weights.md").read_text("utf-8")
    (block,) = re.findall(r"(?s)```python\n(>>> .*?)```", text)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    example = parser.get_doctest(block, {}, "weights.md", "weights.md", 0)
    assert runner.run(example) == doctest.TestResults(0, 10)


def test_the_number_of_meshes_is_that_of_the_results():
    """The first row is the one device that the others are compared with."""
    results = (ROOT / "experiments" / "results" / "equal_runs.txt").read_text("utf-8")
    part = results.partition("pretraining, 30 steps")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^\d x \d: data=", part)
    assert len(rows) == 1 + 10
    for page in ("README.md", "docs/runs.md", "docs/measurements.md"):
        text = (ROOT / page).read_text("utf-8")
        assert "ten meshes and process counts" in text and "eleven meshes" not in text


def test_each_answer_is_two_clicks_from_readme():
    """README -> page, or README -> Questions -> page; its files exist."""
    links = re.compile(r"\]\((?:docs/)?(\w+\.md)(?:#[\w-]+)?\)")
    start = {*links.findall((ROOT / "README.md").read_text("utf-8"))}
    assert {page.name for page in PAGES} <= start
    faq = (ROOT / "docs" / "faq.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| .+\? \| (.+) \|$", faq)
    assert len(rows) >= 20
    for row in rows:
        assert links.findall(row), row
        for path in re.findall(r"`(bert_jax/\S+\.py)`", row):
            assert (ROOT / path).is_file(), row
