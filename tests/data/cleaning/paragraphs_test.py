"""The stages that judge a paragraph by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.cleaning import paragraphs
from bert_jax.data.corpus import Document


@pytest.mark.parametrize(
    "text",
    [
        *("CHAPTER I.—The start", "= Title =", "Figure 3: a cat", "See also:", "1815"),
        *("제목", "目次", "by A. Author, London"),
    ],
)
def test_a_heading_does_not_end_as_a_sentence(text):
    assert paragraphs.headings([text]) == [True]


@pytest.mark.parametrize(
    "text",
    [
        *("He left.", 'She said "no"', "Why?)", "It is so.[12]", "It ended.  \n"),
        *(
            "《书》在这里。",
            "नमस्ते।",
            "هل هذا؟",
            "그는 갔다.",
            "He left.\u201d",
            "",
            " ",
        ),
        *("But I\u2014", 'He said, "But--"', "But I--"),
        "It is a long paragraph, and nobody has written its last mark " * 4,
    ],
)
def test_no_heading(text):
    assert paragraphs.headings([text]) == [False]


@pytest.mark.parametrize(
    "text",
    ["- one", "* two", "\u2022 three", "1. four", "12) five", "(a) six", "[3] x"],
)
def test_an_item(text):
    assert paragraphs.lists([text]) == [True]


@pytest.mark.parametrize(
    "text",
    [
        *("A. Lincoln spoke.", "1815 was a year.", "-dashed", "\u2014 Oui, dit-il."),
        *("I am.", "3.5 metres.", "a cat", "1984. It was cold."),
    ],
)
def test_no_item(text):
    assert paragraphs.lists([text]) == [False]


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        (
            [
                *("Title: X", "*** START OF THIS PROJECT GUTENBERG EBOOK X ***", "A."),
                *("B.", "*** END OF THIS PROJECT GUTENBERG EBOOK X ***", "Licence."),
            ],
            ["A.", "B."],
        ),
        (["A.", "End of the Project Gutenberg's X, by Y", "Licence."], ["A."]),
        (["A book.", "Of Project Gutenberg.", "C."], None),
    ],
)
def test_around_a_book_of_project_gutenberg(parts, left):
    marks = paragraphs.boilerplate(parts)
    kept = [part for part, mark in zip(parts, marks, strict=True) if not mark]
    assert kept == (parts if left is None else left)
    assert not any(paragraphs.boilerplate(kept))


@given(st.text("ab \n\t", max_size=30), st.sampled_from(["wrapped", "lines"]))
def test_parts_join_to_the_text(text, form):
    document = Document(text, form)
    parts = paragraphs.split(document)
    again = paragraphs.joined(document, parts)
    assert again.text.split() == text.split()
    assert paragraphs.split(again) == parts or form == "wrapped"
    assert [p.split() for p in paragraphs.split(again)] == [p.split() for p in parts]
