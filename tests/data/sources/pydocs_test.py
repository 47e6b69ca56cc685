"""Documentation strings: which are extracted and which are left out."""

import ast
import json

import pytest

from bert_jax.data.sources import pydocs


def test_english_leaves_out_code_and_rules():
    text = """Adds numbers.

        Examples
        --------
        Some words, then

        >>> add(1, 2)
        3

        ====  ====
        a     b
        """
    assert (
        pydocs.clean_docstring(text)
        == "Adds numbers.\n\nExamples\nSome words, then\n\na     b"
    )


def test_docstrings_in_the_order_of_the_text():
    code = '''
"""Module."""
if True:
    class A:
        """Class."""
        def f(self):
            """Method."""
            def g():
                """Inner."""
        x = "not this"
async def h():
    """Last."""
'''
    expected = "Module.\n\nClass.\n\nMethod.\n\nInner.\n\nLast."
    assert pydocs.module_docstrings(ast.parse(code)) == expected


@pytest.fixture
def few_files(tmp_path, monkeypatch):
    names = {
        "good.py": '"""Good text."""',
        "bare.py": "x = 1",
        "broken.py": '"""Bad',
        "null.py": "\0",
    }
    for name, code in names.items():
        (tmp_path / name).write_text(code)
    files = [(name, str(tmp_path / name)) for name in names]
    monkeypatch.setattr(pydocs, "_files", lambda: iter(files))
    return tmp_path


def test_extract_keeps_its_result(few_files, monkeypatch):
    path = pydocs.extract_docstrings(few_files / "data")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"module": "good.py", "text": "Good text."}]
    monkeypatch.setattr(pydocs, "_read_files", None)  # would fail if called
    assert pydocs.extract_docstrings(few_files / "data") == path


def test_pydocs_files_that_are_read():
    names = {name for name, _ in pydocs._files()}
    assert "argparse.py" in names
    assert any(name.startswith("numpy/") for name in names)
    assert not any("/tests/" in f"/{name}" or "/pytest/" in name for name in names)
    assert len(names) > 3000
