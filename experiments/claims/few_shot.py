"""Few labelled texts of each class: what is best?

    python -m experiments.claims.few_shot --model=all-MiniLM-L6-v2 --data=imdb \
        --per_class=8,16,64 --seeds=0,1,2 --sides=tfidf,linear,few,tuned,setfit

DATA has train.jsonl and test.jsonl of `text` and `label`. Each seed draws other texts
of train, the same for all sides, and all are scored on the same texts of test. `setfit`
needs that package.
"""

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bert_jax.commands.intervals import estimate
from bert_jax.data.tables import ColumnSpec, read_table
from bert_jax.estimator import BertClassifier, BertFewShot, BertVectors
from bert_jax.runtime.terminal import format_table

# (texts, labels, texts to score) -> their classes
Side = Callable[[Sequence[str], np.ndarray, Sequence[str]], Any]


def fit_estimator(make: Callable[[str, int], Any], model: str, seed: int) -> Side:
    """Returns the side of an estimator of scikit-learn."""
    return lambda texts, labels, asked: (
        make(model, seed).fit(texts, labels).predict(asked)
    )


def fit_setfit(model: str, seed: int, length: int) -> Side:
    """Returns the side of the package setfit, with its defaults."""
    import datasets
    import setfit

    def predict(texts: Sequence[str], labels: np.ndarray, asked: Sequence[str]) -> Any:
        peer = setfit.SetFitModel.from_pretrained(model)
        peer.model_body.max_seq_length = length
        rows = datasets.Dataset.from_dict({"text": texts, "label": labels.tolist()})
        arguments = setfit.TrainingArguments(
            num_iterations=20, seed=seed, report_to="none", show_progress_bar=False
        )
        trainer = setfit.Trainer(model=peer, args=arguments, train_dataset=rows)
        trainer.train()
        return np.asarray(peer.predict(asked))

    return predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {
        "model": None,
        "data": None,
        "per_class": "8,16,64",
        "seeds": "0,1,2",
        "sides": "tfidf,linear,few,tuned",
        "scored": "1000",
        "length": "128",
    }.items():
        parser.add_argument(f"--{name}", default=default, required=default is None)
    options = parser.parse_args()
    length = int(options.length)
    makers: dict[str, Callable[[str, int], Side]] = {
        "tfidf": functools.partial(
            fit_estimator,
            lambda *_: make_pipeline(TfidfVectorizer(), LogisticRegression()),
        ),
        "linear": functools.partial(
            fit_estimator,
            lambda model, _: make_pipeline(BertVectors(model), LogisticRegression()),
        ),
        "few": functools.partial(
            fit_estimator,
            lambda model, seed: BertFewShot(
                model, random_state=seed, max_seq_length=length
            ),
        ),
        "tuned": functools.partial(
            fit_estimator,
            lambda model, seed: BertClassifier(
                model, random_state=seed, max_seq_length=length
            ),
        ),
        "setfit": functools.partial(fit_setfit, length=length),
    }
    columns = ColumnSpec(("text", "label"))
    train, test = (
        [row for _, row in read_table(f"{options.data}/{name}", columns)]
        for name in ("train.jsonl", "test.jsonl")
    )
    asked = test[: int(options.scored)]
    wanted = np.array([row["label"] for row in asked])
    labels = np.array([row["label"] for row in train])
    table = []
    for count in map(int, options.per_class.split(",")):
        for side in options.sides.split(","):
            scores, seconds = [], []
            for seed in map(int, options.seeds.split(",")):
                rng = np.random.default_rng(seed)
                groups = [
                    np.flatnonzero(labels == label) for label in np.unique(labels)
                ]
                parts = [rng.choice(group, count, replace=False) for group in groups]
                chosen = np.concatenate(parts)
                start = time.process_time()
                answers = makers[side](options.model, seed)(
                    [train[i]["text"] for i in chosen],
                    labels[chosen],
                    [row["text"] for row in asked],
                )
                seconds.append(time.process_time() - start)
                scores.append(100 * float(np.mean(answers == wanted)))
                print(count, side, seed, f"{scores[-1]:.2f}", flush=True)
            mean, half = estimate(scores)
            by_seed = ", ".join(f"{score:.1f}" for score in scores)
            used = f"{np.mean(seconds):.0f}"
            table.append((count, side, f"{mean:.1f} +- {half:.1f}", by_seed, used))
    header = ("texts a class", "side", "accuracy", "seeds", "processor seconds")
    print(format_table(table, header))


if __name__ == "__main__":
    main()
