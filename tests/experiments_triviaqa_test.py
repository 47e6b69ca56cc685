"""TriviaQA's form into SQuAD's, on hand-made files in the official form."""

import json
import random

import pytest

from bert_jax.tasks.squad import data as squad
from experiments.paper import triviaqa

PAGES = {
    "wikipedia/Sunset.txt": "The film  Sunset\nBoulevard is of 1950.\n\nSunset Blvd.",
    "wikipedia/Virus.txt": "A virus is small. The US has many.",
    "wikipedia/None.txt": "Nothing here.",
    "wikipedia/Empty.txt": " \n",
    "wikipedia/Späte_Ä.txt": "İstanbul, ÉCLAIR and café.",
    "web/35/35_995.txt": "word " * 399 + "Answer answer",
}


def question(number, aliases, wikipedia=(), web=()):
    return {
        "Answer": {
            "Aliases": ["not used"],
            "NormalizedAliases": aliases,
            "NormalizedValue": aliases[0] if aliases else "",
            "Type": "WikipediaEntity",
            "Value": "not used",
        },
        "EntityPages": [
            {"DocSource": "TagMe", "Filename": name, "Title": name}
            for name in wikipedia
        ],
        "Question": f"What is {number}?",
        "QuestionId": number,
        "QuestionSource": "http://example.org/",
        "SearchResults": [{"Filename": name, "Rank": 0} for name in web],
    }


QUESTIONS = [
    question(
        "tc_1", ["west sunset", "sunset blvd", "sunset boulevard"], ["Sunset.txt"]
    ),
    question("tc_2", ["us"], ["Virus.txt", "None.txt", "Gone.txt", "Virus.txt"]),
    question("tc_3", ["éclair"], ["Späte_Ä.txt", "Empty.txt"]),
    question("tc_4", ["answer"], [], ["35/35_995.txt"]),
    question("tc_5", ["(x", "", "nowhere"], ["None.txt"]),
    question("tc_6", ["no page"]),
]


def write(folder, questions=QUESTIONS, pages=PAGES):
    for name, text in pages.items():
        place = folder / "evidence" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    content = {
        "Data": questions,
        "Domain": "Web",
        "VerifiedEval": False,
        "Version": 1.0,
    }
    (folder / "qa.json").write_text(json.dumps(content), encoding="utf-8")


def convert(folder, *more, status=0):
    given = (("qa", "qa.json"), ("evidence", "evidence"), ("output", "out.json"))
    options = [f"--{name}={folder / value}" for name, value in given]
    assert triviaqa.main([*options, *more]) == status


def test_pages_become_questions_of_squad(tmp_path, capsys):
    write(tmp_path)
    convert(tmp_path)
    examples, counts = squad.read(tmp_path / "out.json")
    assert not counts
    found = {example.id: example for example in examples}
    assert list(found) == [
        *("tc_1--Sunset.txt", "tc_2--Virus.txt"),
        *("tc_3--Späte_Ä.txt", "tc_4--35/35_995.txt"),
    ]
    for example in examples:
        (answer,) = example.answers
        end = answer.start + len(answer.text)
        assert example.context[answer.start : end] == answer.text
    # The first alias of the list that occurs, though another comes before it.
    assert found["tc_1--Sunset.txt"].answers == (("Sunset Blvd", 40),)
    assert found["tc_1--Sunset.txt"].question == "What is tc_1?"
    assert found["tc_2--Virus.txt"].answers == (("US", 22),)  # not in "virus"
    assert found["tc_3--Späte_Ä.txt"].answers == (("ÉCLAIR", 10),)
    # The 400th token is the last.
    assert found["tc_4--35/35_995.txt"].context.endswith("word Answer")
    assert capsys.readouterr().out == (
        "6 questions, 8 pages: 4 written for 4 questions; left out: questions "
        "without a page: 1; without an answer in 400 tokens: 2; files missing: 1; "
        "files empty: 1\n"
    )


@pytest.mark.parametrize(
    ("context", "alias", "found"),
    [
        ("by J. K. Rowling.", "j k rowling", "J. K. Rowling"),
        ("Jay-Z, AC/DC", "ac dc", "AC/DC"),
        ("The Lord of the Rings", "lord of rings", "Lord of the Rings"),
        ("He paid $1.5 million.", "1 5 million", "1.5 million"),
        ("no. One. \n\n - two", "one two", None),  # of two paragraphs
        ("a virus", "us", None),
        ("x+y (z", "(z", "(z"),
    ],
)
def test_an_alias_lacks_marks_and_articles(context, alias, found):
    span = triviaqa.find(context, [alias])
    assert (context[slice(*span)] if span else None) == found


def test_fewer_tokens_hold_fewer_answers(tmp_path, capsys):
    write(tmp_path)
    convert(tmp_path, "--max_tokens=4")
    examples, _ = squad.read(tmp_path / "out.json")
    contexts = {example.id: example.context for example in examples}
    assert contexts == {
        "tc_1--Sunset.txt": "The film  Sunset\nBoulevard",
        "tc_3--Späte_Ä.txt": "İstanbul, ÉCLAIR and",
    }
    assert examples[0].answers == (("Sunset\nBoulevard", 10),)


def test_on_plain_words_it_is_as_the_official_script(tmp_path):
    """Its steps, transcribed: tokens joined by spaces, then the first alias found in
    the text in lower case. Here words of one length, so none is inside another."""
    rng = random.Random(0)
    words = [f"Word{number}" for number in range(100, 600)]
    pages = {
        f"wikipedia/{n}.txt": " ".join(rng.choices(words, k=rng.randint(300, 900)))
        for n in range(40)
    }
    questions = [
        question(f"q{n}", [w.lower() for w in rng.choices(words, k=3)], [f"{n}.txt"])
        for n in range(40)
    ]
    expected = {}
    for n, asked in enumerate(questions):
        text = " ".join(pages[f"wikipedia/{n}.txt"].split()[:400])
        for alias in asked["Answer"]["NormalizedAliases"]:
            if (index := text.lower().find(alias)) >= 0:
                expected[f"q{n}--{n}.txt"] = (text, alias, index)
                break
    write(tmp_path, questions, pages)
    convert(tmp_path)
    examples, _ = squad.read(tmp_path / "out.json")
    assert {
        e.id: (e.context, e.answers[0].text.lower(), e.answers[0].start)
        for e in examples
    } == expected
    assert 20 < len(expected) < 40


def broken(change):
    asked = question("tc_1", ["x"], ["Sunset.txt"])
    change(asked)
    return [asked]


@pytest.mark.parametrize(
    ("questions", "says"),
    [
        (broken(lambda q: q.pop("Answer")), "it has no Data[0].Answer; qa/wikipedia"),
        (broken(lambda q: q.pop("Question")), "it has no Data[0].Question;"),
        (
            broken(lambda q: q["Answer"].pop("NormalizedAliases")),
            "Data[0].Answer.NormalizedAliases",
        ),
        (
            broken(lambda q: q.update(EntityPages=7)),
            "Data[0]: damaged: EntityPages is 7, not a list",
        ),
        (
            broken(lambda q: q.update(EntityPages=[{}])),
            "it has no EntityPages[0].Filename",
        ),
        (
            broken(lambda q: q["EntityPages"][0].update(Filename="../../qa.json")),
            "out of",
        ),
        (broken(lambda q: q["EntityPages"][0].update(Filename="x" * 300)), "too long"),
        ([], "qa.json: Data is empty; qa/wiki"),
        ({}, "qa.json: damaged: Data is {}, not a list; qa/wiki"),
        ([1], "Data[0] is 1, not an object"),
        ([question("q", ["gone"], ["None.txt"])], "no page holds an answer"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, capsys, questions, says):
    write(tmp_path, questions)
    convert(tmp_path, status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and says in line
    assert not [p.name for p in tmp_path.iterdir() if "out.json" in p.name]


def test_wrong_places_are_one_line(tmp_path, capsys):
    write(tmp_path, pages={"web/1.txt": "x"})
    convert(tmp_path, status=2)
    assert "has no folder wikipedia" in capsys.readouterr().err
    (tmp_path / "evidence" / "wikipedia").mkdir()
    (tmp_path / "evidence" / "wikipedia" / "Sunset.txt").write_bytes(b"a\xff")
    convert(tmp_path, status=2)
    assert "Sunset.txt: byte 1 is not UTF-8" in capsys.readouterr().err
    convert(tmp_path, f"--output={tmp_path / 'none' / 'out.json'}", status=2)
    assert "must be a file in an existing folder" in capsys.readouterr().err
    (tmp_path / "qa.json").write_text("[1]")
    convert(tmp_path, status=2)
    assert "not a JSON object, but a list; qa/wikipedia" in capsys.readouterr().err
    (tmp_path / "qa.json").unlink()
    convert(tmp_path, status=2)
    assert "qa.json: cannot be read" in capsys.readouterr().err
