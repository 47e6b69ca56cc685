r"""TriviaQA's files in SQuAD 1.1's form, for the epoch before SQuAD (section 4.2).

    python -m experiments.paper.triviaqa --qa=qa/wikipedia-train.json \
        --evidence=evidence --output=triviaqa-train.json [--max_tokens=400]

The input is TriviaQA's reading comprehension release (triviaqa-rc.tar.gz): a file of
its folder qa, and its folder evidence, with wikipedia/ and web/. Each question becomes
one of SQuAD's for every page of its own (EntityPages in evidence/wikipedia, in the
web files SearchResults in evidence/web) whose first 400 tokens hold an answer; the
answer is the first of NormalizedAliases that occurs there, where it occurs first. That
is the paper's "first 400 tokens in documents, that contain at least one of the provided
possible answers", and what TriviaQA's own utils/convert_to_squad_format.py does, but:

- The context is the page's text as it stands. There it is NLTK's tokens joined by
  spaces, 800 of them by default. Tokens here are words (letters, digits, underscores)
  and single marks; NLTK's rules for contractions and quotes give slightly other counts.
- An alias matches whole words, with marks and articles between them, which
  NormalizedAliases lack: "j k rowling" is found in "J. K. Rowling", and "us" not in
  "virus". There it is the other way round: it looks for the alias as a string.
- Training pages without an answer are left out. There they stay, without a question.
- The answer's text is as the page spells it. There it is the alias, in lower case.
- Questions stay in the file's order; there they are shuffled.

Ids are QuestionId--Filename, as there. The counts printed at the end say what is left
out and why.
"""

import argparse
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import output, replacing
from experiments.lib import command_line, ending, kept

TOKENS = 400
_TOKEN = re.compile(r"\w+|[^\w\s]")
_BETWEEN = r"[\W_]{1,3}(?:(?:an?|the)[\W_]{1,3})?"
# The folder of evidence that each list of pages names files of.
SOURCES = {"EntityPages": "wikipedia", "SearchResults": "web"}
# What is read of a file of qa; of each list of pages, where there is one.
_ANSWER = {"NormalizedAliases": [str]}
_QUESTIONS = {"Data": [{"QuestionId": str, "Question": str, "Answer": _ANSWER}]}
_PAGES = {key: [{"Filename": str}] for key in SOURCES}
_HINT = (
    "qa/wikipedia-train.json of triviaqa-rc.tar.gz is such a file; those of its test "
    "questions have no answers"
)


class Question(NamedTuple):
    """A question, its answer's spellings, and the files of its pages."""

    id: str
    text: str
    aliases: tuple[str, ...]
    pages: tuple[tuple[str, str], ...]  # folder and name


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.paper.triviaqa", __doc__)
    parser.add_argument("--qa", required=True, type=Path, help="wikipedia-train.json")
    parser.add_argument("--evidence", required=True, type=Path, help="a folder")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--max_tokens", default=TOKENS, type=int)
    options = parser.parse_args(argv)
    if options.max_tokens < 1:
        raise UserError(f"--max_tokens={options.max_tokens}: must be at least 1")
    target = output(str(options.output))
    questions = list(read(options.qa))
    check_folders(options.evidence, questions)
    counts: Counter[str] = Counter()
    with replacing(target) as file:
        file.write('{"version": "TriviaQA", "data": [')
        begins = itertools.chain(["\n"], itertools.repeat(",\n"))
        for article in articles(questions, options, counts):
            file.write(next(begins) + json.dumps(article, ensure_ascii=False))
        file.write("\n]}\n")
        if not counts["written"]:
            raise UserError(
                f"--evidence={options.evidence}: no page holds an answer, so "
                f"nothing is written ({describe(counts)})"
            )
    print(f"{len(questions):,} questions, {describe(counts)}")
    return 0


def read(path: Path) -> Iterator[Question]:
    """The questions of a file in TriviaQA's form, in order.

    Raises:
      UserError: it is not one, or has no answers.
    """
    data = kept.read(path, _QUESTIONS, _HINT)["Data"]
    if not data:
        raise UserError(f"{path}: Data is empty; {_HINT}")
    for index, item in enumerate(data):
        lists = {name: item.get(name, []) for name in SOURCES}
        kept.check(lists, _PAGES, f"{path}: Data[{index}]", _HINT)
        pages = [
            (folder, page["Filename"])
            for name, folder in SOURCES.items()
            for page in lists[name]
        ]
        yield Question(
            item["QuestionId"],
            item["Question"],
            tuple(item["Answer"]["NormalizedAliases"]),
            tuple(dict.fromkeys(pages)),  # each once
        )


def check_folders(evidence: Path, questions: Sequence[Question]) -> None:
    """Raises UserError if a folder of pages is missing."""
    for folder in sorted({folder for q in questions for folder, _ in q.pages}):
        if not (evidence / folder).is_dir():
            raise UserError(
                f"--evidence={evidence}: has no folder {folder}; name the folder "
                "evidence of triviaqa-rc.tar.gz"
            )


def articles(
    questions: Sequence[Question], options: argparse.Namespace, counts: Counter[str]
) -> Iterator[dict[str, Any]]:
    """An article of SQuAD's for each page that holds an answer; counts the others.

    Raises:
      UserError: a page cannot be read, is not UTF-8, or is outside the folder.
    """
    for question in questions:
        counts["questions without a page"] += not question.pages
        written = counts["written"]
        for folder, name in question.pages:
            counts["pages"] += 1
            context = page(options.evidence / folder, name, options.max_tokens)
            if not context:
                why = "missing" if context is None else "empty"
                counts[f"files {why}"] += 1
                continue
            span = find(context, question.aliases)
            if span is None:
                counts[f"without an answer in {options.max_tokens} tokens"] += 1
                continue
            counts["written"] += 1
            answer = {"text": context[slice(*span)], "answer_start": span[0]}
            asked = {
                "id": f"{question.id}--{name}",
                "question": question.text,
                "answers": [answer],
            }
            paragraph = {"context": context, "qas": [asked]}
            yield {"title": Path(name).stem, "paragraphs": [paragraph]}
        counts["questions with one or more"] += counts["written"] > written


def page(folder: Path, name: str, max_tokens: int) -> str | None:
    """The first tokens of a page as they stand; None if the file is missing."""
    try:
        path = untrusted.inside(folder, name)
        if path is None:
            return None
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise UserError(f"{folder}: {name[:80]!r} cannot be read ({error})") from error
    tokens = itertools.islice(_TOKEN.finditer(text), max_tokens)
    spans = [token.span() for token in tokens]
    return text[spans[0][0] : spans[-1][1]] if spans else ""


def find(context: str, aliases: Sequence[str]) -> tuple[int, int] | None:
    """Where the first alias that occurs does so first: its characters, [start, end).

    Whole words, in any case. Between two words may stand what TriviaQA's normalization
    (evaluation/triviaqa_evaluation.py, normalize_answer) takes away: up to three spaces
    and marks, and an article.

    Args:
      aliases: in lower case.
    """
    lowered = context.lower()
    for alias in aliases:
        words = alias.split()
        # Most aliases do not occur at all, and a search is quicker than a pattern.
        if not words or not all(word in lowered for word in words):
            continue
        pattern = _BETWEEN.join(map(re.escape, words))
        match = re.search(rf"(?<!\w){pattern}(?!\w)", context, re.IGNORECASE)
        if match:
            return match.span()
    return None


def describe(counts: Counter[str]) -> str:
    """The counts in one line."""
    pages, written, some = (
        counts.pop(name, 0)
        for name in ("pages", "written", "questions with one or more")
    )
    rest = "; ".join(f"{what}: {count:,}" for what, count in counts.items() if count)
    told = f"{pages:,} pages: {written:,} written for {some:,} questions"
    return f"{told}; left out: {rest}" if rest else told


if __name__ == "__main__":
    ending.start(main)
