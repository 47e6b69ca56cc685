"""Search for the passage of a question: by vectors, tuned vectors, and a reader.

    python -m experiments.claims.search_with_reader --model=all-MiniLM-L6-v2 \
        --train=train-v1.1.json --dev=dev-v1.1.json --pairs=1000 --questions=300 \
        --read=20 --output=runs/search

TRAIN and DEV are files of SQuAD. Vectors and reader are trained on as many of TRAIN's
questions as PAIRS says, by the steps of docs/search.md, and scored on questions of DEV,
each with all of DEV's passages.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import bert_jax
from bert_jax import search
from bert_jax.pretrained import Bert
from bert_jax.runtime.terminal import format_table
from bert_jax.scores.retrieval import retrieval_scores


def read_pairs(path: str, count: int, seed: int = 0) -> tuple[list[dict], list[str]]:
    """Returns some questions with their passages, and all passages."""
    articles = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
    passages = [passage for article in articles for passage in article["paragraphs"]]
    pairs = [
        {"text": question["question"].strip(), "text_b": passage["context"]}
        for passage in passages
        for question in passage["qas"]
    ]
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:count]
    every = list(dict.fromkeys(passage["context"] for passage in passages))
    return [pairs[index] for index in chosen], every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "train", "dev", "output"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in {"pairs": 1000, "questions": 300, "read": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    pairs, _ = read_pairs(options.train, options.pairs)
    asked, passages = read_pairs(options.dev, options.questions)
    places = {passage: place for place, passage in enumerate(passages)}
    judged = [{places[row["text_b"]]: 1.0} for row in asked]
    questions = [row["text"] for row in asked]
    table = []

    def note(name: str, similarities: np.ndarray, start: float) -> None:
        found = retrieval_scores(similarities, judged)
        seconds = f"{time.process_time() - start:.0f}"
        table.append((name, *(f"{x:.4f}" for x in found.values()), seconds))
        header = ("search", *found, "processor seconds")
        print(format_table(table, header), flush=True)

    def vectors_of(model: Bert) -> tuple[np.ndarray, search.Found]:
        vectors = model.sentences(passages)
        near = search.top_k(model.sentences(questions), vectors, len(passages))
        whole = np.empty_like(near.scores)
        np.put_along_axis(whole, near.indices, near.scores, axis=1)
        return whole, near

    start = time.process_time()
    model = bert_jax.load(options.model)
    whole, near = vectors_of(model)
    note("vectors", whole, start)

    start = time.process_time()
    triples = search.mine_negatives(pairs, model, count=4)
    fields = {"init_from": options.model, "task.class_weights": ("balanced",)}
    fields |= {"task.text_b": "text_b", "task.max_seq_length": 192}
    fields |= {"train.num_epochs": 1.0}
    config = bert_jax.make_config("finetune/text", fields)
    bert_jax.fit(config, f"{options.output}/reader", search.judged_rows(triples))
    reader = bert_jax.load(f"{options.output}/reader")

    def read(whole: np.ndarray, near: search.Found) -> np.ndarray:
        ordered = whole.copy()
        for row, question in enumerate(questions):
            some = near.indices[row, : options.read]
            texts = [passages[index] for index in some]
            order = search.rerank(question, texts, reader)
            # Above the cosines of all others.
            ordered[row, some[order.indices[0]]] = 2.0 + order.scores[0]
        return ordered

    note("vectors, reader", read(whole, near), start)

    start = time.process_time()
    fields = {"init_from": options.model, "train.batch_size": 32}
    fields |= {"task.max_seq_length": 192}
    config = bert_jax.make_config("finetune/embeddings", fields)
    firsts = {row["text"]: row for row in reversed(triples)}
    trained = bert_jax.fit(
        config, f"{options.output}/vectors", train=[*firsts.values()]
    )
    assert trained.model is not None
    whole, near = vectors_of(trained.model)
    note("tuned vectors", whole, start)
    note("tuned vectors, reader", read(whole, near), start)


if __name__ == "__main__":
    main()
