"""Do the words that `predict.reasons` names decide the answer? They are left out.

    python -m experiments.insight.reasons --model=runs/topics --rows=dev.jsonl

ROWS have a `text` each. Each word of a text is left out in turn, and the log odds of
the class that the whole text was given are compared: how far they fall, for the word
with the largest score, one at random, and the smallest one, beside the largest possible
fall. `spearman` is the mean, over the texts, of the rank correlation of scores and
falls.
"""

import argparse

import numpy as np
from scipy import stats

import bert_jax
from bert_jax.data.tables import ColumnSpec, read_rows
from bert_jax.runtime.terminal import format_table

_EVERY = 10_000  # words of a text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", required=True)
    options = parser.parse_args()
    model = bert_jax.load(options.model)
    texts = [row["text"] for _, row in read_rows(options.rows, ColumnSpec(("text",)))]
    answers = model.predict(texts, reasons=_EVERY)
    shorter = [
        text[: word["start"]] + text[word["end"] :]
        for text, answer in zip(texts, answers, strict=True)
        for word in answer["reasons"]
    ]
    left = iter(model.predict(shorter))

    def log_odds(scores: dict[str, float], label: str) -> float:
        share = min(max(scores[label], 1e-12), 1 - 1e-12)
        return float(np.log(share / (1 - share)))

    rng, ranks, falls = np.random.default_rng(0), [], []
    for answer in answers:
        label = answer["label"]
        whole = log_odds(answer["scores"], label)
        scores = np.array([word["score"] for word in answer["reasons"]])
        fall = np.array([whole - log_odds(next(left)["scores"], label) for _ in scores])
        if len(scores) < 4:
            continue
        ranks.append(stats.spearmanr(scores, fall).statistic)
        chosen = (np.argmax(scores), rng.integers(len(scores)), np.argmin(scores))
        falls.append([*fall[[*chosen]], fall.max()])
    means = [f"{mean:.2f}" for mean in np.mean(falls, axis=0)]
    row = (len(falls), f"{np.nanmean(ranks):.2f}", *means)
    header = ("texts", "spearman", "first word", "any word", "last word", "largest")
    print(format_table([row], header))


if __name__ == "__main__":
    main()
