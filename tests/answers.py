"""Answers of prediction files and of `transformers` in the form of `predict`."""

import json

import pytest


def by_files(kind, folder):
    """Reads the answers of the prediction files, those of `predict` in the same
    form."""

    def lines(name):
        return [json.loads(line) for line in (folder / name).open()]

    if kind == "squad":
        texts = json.loads((folder / "predictions.json").read_text())
        nbest = json.loads((folder / "nbest_predictions.json").read_text())
        return [
            {
                "answer": text,
                "score": next(
                    guess["probability"]
                    for guess in nbest[key]
                    if guess["text"] == text
                ),
            }
            for key, text in texts.items()
        ]
    if kind == "text":
        return [{k: row[k] for k in ("label", "scores")} for row in lines("dev.jsonl")]
    if kind == "swag":
        return [
            {"choice": row["label"], "scores": row["scores"]}
            for row in lines("dev.jsonl")
        ]
    if kind == "ner":
        sentences = (folder / "dev.conll").read_text().strip().split("\n\n")
        return [
            {"tags": [line.split("\t")[-1] for line in sentence.split("\n")]}
            for sentence in sentences
            if "-DOCSTART-" not in sentence
        ]
    rows = (folder / f"{kind}-dev.tsv").read_text().strip().split("\n")[1:]
    answers = [row.split("\t")[1] for row in rows]
    if kind == "stsb":
        return [{"score": float(answer)} for answer in answers]
    return [{"label": answer} for answer in answers]


def same(some, others, only=lambda index: True):
    """Checks that texts are equal, numbers to 1e-5."""
    assert len(some) == len(others) > 0
    for index, (one, other) in enumerate(zip(some, others, strict=True)):
        if only(index):
            other = {key: other[key] for key in one}
            assert numbers(one) == pytest.approx(numbers(other), abs=1e-5, rel=1e-5)
            assert words(one) == words(other)


def numbers(value):
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in numbers(value[key])]
    if isinstance(value, list):
        return [x for each in value for x in numbers(each)]
    return [value] if isinstance(value, int | float) else []


def words(value):
    if isinstance(value, dict):
        return [x for key in sorted(value) for x in (key, *words(value[key]))]
    if isinstance(value, list):
        return [x for each in value for x in words(each)]
    return [] if isinstance(value, int | float) else [value]


def varied(answers):
    """Whether the model does not answer everything alike."""
    answers = [tag for answer in answers for tag in answer.get("tags", [answer])]
    return len({json.dumps(answer) for answer in answers}) > 1


def encoded(tokenizer, kind, row, room):
    """Encodes a row as `transformers` does, where only a review has to be cut."""
    if kind == "text":  # the end of it is kept
        ids = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        return tokenizer.pad(
            {"input_ids": [[tokenizer.cls_token_id, *ids[2 - room :],
                            tokenizer.sep_token_id]]}, return_tensors="pt",
        )  # fmt: skip
    if kind == "ner":
        return tokenizer(row["words"], is_split_into_words=True, return_tensors="pt")
    if kind == "swag":
        four = [row["context"]] * 4
        found = tokenizer(four, row["endings"], padding=True, return_tensors="pt")
        return {name: column[None] for name, column in found.items()}
    names = ("question", "context") if kind == "squad" else ("text", "text_b")
    found = tokenizer(*(row[name] for name in names), return_tensors="pt")
    if kind == "squad" and len(tokenizer(row["question"])["input_ids"]) > 9 + 2:
        found["input_ids"] = found["input_ids"].repeat(1, room)  # too long
    return found


def expected(kind, row, encoding, outputs, labels):
    """Returns the answer of `transformers`, in the form of `predict`."""
    if kind == "squad":
        sums = outputs.start_logits[0, 0] + outputs.end_logits[0, 0]
        return {"null_score": float(sums)}
    logits = outputs.logits[0]
    if kind == "text":
        shares = logits.softmax(-1).tolist()
        return {"scores": {labels[index]: x for index, x in enumerate(shares)}}
    if kind == "swag":
        return {"scores": logits.softmax(-1).tolist()}
    if kind == "stsb":
        return {"score": float(logits[0])}
    if kind == "mrpc":
        return {"label": labels[int(logits.argmax())]}
    words = encoding.word_ids(0)
    firsts = [words.index(index) for index in range(len(row["words"]))]
    return {"tags": [labels[i] for i in logits[firsts].argmax(-1).tolist()]}
