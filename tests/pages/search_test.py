"""docs/search.md: its code runs from top to bottom, in a folder with the two tables."""

import csv
import re
from pathlib import Path

import pytest

from bert_jax.convert import weights

PAGE = Path(__file__).resolve().parents[2] / "docs" / "search.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
TOPICS = ["harbor", "kitchen", "garden", "school", "market", "station", "forest"]


@pytest.mark.slow
def test_code_of_the_page_runs(tmp_path, monkeypatch, one_device):
    monkeypatch.chdir(tmp_path)
    weights.find_source("mini").export(Path("minilm"))
    pairs = [
        (f"where is the {topic}?", f"The {topic} lies at the end of the road.")
        for topic in TOPICS
    ]
    for name, header, rows in (
        ("pairs.csv", ("text", "text_b"), pairs),
        ("answers.csv", ("text",), [(answer,) for _, answer in pairs]),
    ):
        with open(name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
    assert len(CODE) == 5
    namespace: dict = {}
    for text in CODE:
        exec(compile(text, str(PAGE), "exec"), namespace)
    assert len(namespace["rows"]) > len(TOPICS)  # positives and negatives
    assert {row["label"] for row in namespace["rows"]} == {0, 1}
    assert sorted(namespace["order"]) == [*range(len(namespace["near"]))]
    assert namespace["scores"].shape == (7, 7)
