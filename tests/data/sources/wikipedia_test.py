"""Text passages of articles as TFDS gives them, with each line labeled by hand."""

import pytest
import tensorflow_datasets as tfds

from bert_jax.data import corpus
from bert_jax.data.sources import wikipedia

# An article as tensorflow_datasets/text/wikipedia.py leaves it (mwparserfromhell's
# strip_code): sections with an empty line between them, "== History ==" as "History ",
# "* item" as " item" but "*item" as "item", "[[Datei:...|mini|...]]" as "mini|...".
# P: a passage, H: a heading, L: of a list, T: of a table, C: a caption or category.
ARTICLE = """\
P|Halden Ferry (also "the Crossing") is a village on the Orr. It has 412 inhabitants.
 |
P|It lies 12 km north of Marrow, and was named after a ferry (closed in 1931).
 |
H|History\x20
P|The village was founded in 1204 by monks of Orrington Abbey, who kept the ferry.
P|A bridge was planned twice, in 1811 and 1863; neither was built!
 |
H|Early settlement
P|"There was nothing here but reeds," wrote Brother Anselm, "and the reeds had owners."
 |
H|The ferry\x20
P|The ferry carried:
L| passengers and their luggage,
L| cattle, which had to swim behind.
L| It ran every hour. In winter it ran when the ferryman was awake.
 |
P|Its owners were, one after the other:
L| John Marsh (1790-1811)
L| Mary Marsh (1811-1840), his widow
 |
H|Washington, D.C.
P|A daughter parish was founded overseas in 1850.
 |
H|Who built it?
P|The builder of the church is unknown. Its tower leans by 3 degrees.
 |
H|Demographics
T|! Year
T|| 1801 || 377
T|1901  512
C|thumb|The ferry in 1910. The man on the left is the ferryman.
C|mini|Die Fähre im Jahr 1910
P|The population fell after the ferry closed and has been rising since 1990.
 |
H|Notable people
L| Ada Quill (1801-1877), poet. She wrote The Reeds.
L|Tom Quill, footballer
 |
H|See also\x20
L| List of ferries
 |
H|References\x20
 |
H|Bibliography
L|Marsh, J. (1920). A History of the Ferry. Marrow: Hill Press.
L| Quill, A. (1850). The Reeds. London.
 |
H|External links
L| Official website
C|Category:Villages
C|Category:River crossings of the 13th century
"""


def labelled():
    return [line.split("|", 1) for line in ARTICLE.splitlines()]


def test_passages_only():
    text = "\n".join(line for _, line in labelled())
    expected = [line for label, line in labelled() if label == "P"]
    # What leads to a list is no passage once the list is gone.
    leads = ("The ferry carried:", "Its owners were, one after the other:")
    expected = [line for line in expected if line not in leads]
    assert len(expected) == 8
    assert wikipedia.article_paragraphs(text).split("\n") == expected


@pytest.mark.parametrize(
    "passage",
    [
        "これは日本語の記事の本文であり、句点で終わる一つの段落である。",
        "यह एक विश्वकोश के लेख का अनुच्छेद है और यहाँ समाप्त होता है।",
        "هل هذه فقرة من مقالة في الموسوعة الحرة؟",
        "นี่คือย่อหน้าของบทความภาษาไทยซึ่งไม่มีเครื่องหมายจบประโยค " * 4,
        'It ends with a word of the poet\'s: "Nothing but reeds."',
    ],
)
def test_article_paragraphs_of_other_languages(passage):
    text = f"หัวข้อ\n{passage}\n\n Liste"
    assert wikipedia.article_paragraphs(text) == passage.strip()


def test_appendix_ends_with_the_next_heading():
    text = (
        "It is a river of the north.\n\nNotes\nOrr (1920). A Book of Rivers.\n\n"
        "Course\nThe river rises in the Grey Hills."
    )
    assert wikipedia.article_paragraphs(text) == (
        "It is a river of the north.\nThe river rises in the Grey Hills."
    )


def test_tfds_wikipedia_is_read_without_them(tmp_path, make_builder):
    features = {"text": tfds.features.Text(), "title": tfds.features.Text()}
    page = {"text": "\n".join(line for _, line in labelled()), "title": "Halden Ferry"}
    nothing = {"text": "List of ferries\n\n A\n B", "title": "List"}
    home = make_builder(tmp_path, "wikipedia", [nothing, page], features)
    (document,) = corpus.read_documents((f"tfds:{home}",), tmp_path)
    sentences = corpus.split_sentences(document, "en")
    assert sentences[0].startswith("Halden Ferry (also")
    assert sentences[-1].startswith("The population fell")
    assert not any("Quill" in s or "Category" in s for s in sentences)
