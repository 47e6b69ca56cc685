"""The tables of experiments.english.table: scores, gains, published figures."""

from collections.abc import Mapping, Sequence

from experiments.lib.verdicts import shown
from experiments.paper.systems import Column

COLUMNS = {
    column.task: column
    for column in (
        Column("sst2", "sst2", "accuracy"),
        Column("mrpc", "mrpc", "accuracy"),
        Column("rte", "rte", "accuracy"),
        Column("cola", "cola", "matthews"),
        Column("stsb", "stsb", "spearman"),
        Column("mnli", "mnli", "accuracy"),
        Column("qnli", "qnli", "accuracy"),
        Column("squad", "squad", "f1"),
        Column("ner", "ner", "f1"),
    )
}
# GLUE test scores of small models: google-research/bert, README.md; BabyLM's RoBERTa of
# 10 M words, on its evaluation's part of dev. All were trained on the tasks' whole
# training sets.
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "sst2": {"tiny": 83.2, "mini": 85.9, "small": 89.7, "BabyLM": 87.0},
    "mnli": {"tiny": 70.2, "mini": 74.8, "small": 77.6, "BabyLM": 73.2},
}
OTHERS = ("tiny", "mini", "small", "BabyLM")
TRAINED, RANDOM = "pre-trained", "random values"
# Of a system and a task, in points, by seed.
Scores = Mapping[tuple[str, str], Mapping[int, float]]
NOTE = """on dev, in percent: mean ± half of the 95% interval over {seeds} seeds
(Student's t); the interval of the gain is of the differences seed by seed
* published: BERT-tiny, mini, small (4 layers of 512; google-research/bert) on test,
  BabyLM's RoBERTa of 10 M words on its part of dev; -: no figure at hand"""


def compared(
    found: Scores, names: Sequence[str], floors: Mapping[str, float | None]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The rows and the header of the table."""
    lines = []
    for task in names:
        column, floor = COLUMNS[task], floors[task]
        trained, random = found[TRAINED, task], found[RANDOM, task]
        both = sorted(trained.keys() & random.keys())
        gain = shown([trained[n] - random[n] for n in both])
        published = PUBLISHED.get(task, {})
        others = (f"{published[o]:.1f}" if o in published else "-" for o in OTHERS)
        majority = "-" if floor is None else f"{floor:.1f}"
        scores = (shown([*system.values()]) for system in (random, trained))
        lines.append((column.title, majority, *scores, gain, *others))
    header = ("task", "majority", RANDOM, TRAINED, "gain", *(f"{o}*" for o in OTHERS))
    return lines, header


def curve(
    found: Scores, names: Sequence[str]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """By pre-training step."""
    steps = list(dict.fromkeys(system for system, _ in found))
    lines = [
        (step, *(shown([*found[step, task].values()]) for task in names))
        for step in steps
    ]
    return lines, ("pre-training", *(COLUMNS[task].title for task in names))
