"""The commands of experiments/ that a campaign disturbs, and the files that they read.

A home is a folder with `in/` and, of a finished command, `out/`; all names in it are
relative, so that a copy of it works as well, and its files have the same names.
"""

import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from tests.forked import ROOT
from tests.micro_data import KINDS


class Command(NamedTuple):
    """A command and what it reads.

    Attributes:
      module: of experiments/.
      arguments: in a home.
      reads: patterns of files in a home, besides `out/`.
      result: the file in `out/` that it ends with; "": what it prints.
    """

    module: str
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    result: str


_PAPER = ("--size=tiny", "--data=in/data", "--seeds=2", "--output=out")
_CORPUS = "--corpus=sentences:in/corpus.txt"
_STEPS = (_CORPUS, "--config.train.num_steps=10")
_WEIGHTS = "--weights=in/model"
_NER = "in/data/NER"
# Of a pre-training run, what tells its text; its weights are chaos.py's.
_RUN = ("run/*.json", "run/vocab.txt", "in/*.txt", "data/*/*")
COMMANDS = {
    "features": Command(
        "paper.features",
        (
            *("--init_from=in/model", f"--train={_NER}/train.conll", "--output=out"),
            *(f"--dev={_NER}/dev.conll", f"--test={_NER}/test.conll", "--size=4"),
            *("--seeds=2", "--choices=last,sum_all", "--config.train.num_epochs=2"),
            *("--config.train.batch_size=4", "--config.evaluate.batch_size=4"),
        ),
        ("in/model/*", f"{_NER}/*"),
        "results.json",
    ),
    "probes": Command(
        "insight.probes",
        (
            *("--init_from=in/model", f"--train={_NER}/train.conll", "--output=out"),
            *(f"--dev={_NER}/dev.conll", "--sst2=in/data/SST-2", "--parts=2"),
            *("--words=1000", "--sentences=10", "--plot"),
        ),
        ("in/model/*", f"{_NER}/[td][re]*", "in/data/SST-2/[td][re]*"),
        "results.json",
    ),
    "senses": Command(
        "insight.senses",
        (
            *("--init_from=in/model", "--word=cats", "--sentences=in/senses.tsv"),
            *("--output=out", "--text=sentences:in/corpus.txt", "--plot"),
        ),
        ("in/model/*", "in/senses.tsv", "in/corpus.txt"),
        "cats.json",
    ),
    "learning_curves": Command(
        "claims.learning_curves",
        (
            *("--data=in/reviews", "--init_from=in/model", "--examples=4,8"),
            *("--draws=1", "--seeds=2", "--size=tiny", "--epochs=2", "--output=out"),
            "--config.task.max_seq_length=16",
        ),
        ("in/model/*", "in/reviews/*"),
        "results.json",
    ),
    "squad_ensemble": Command(
        "paper.squad_ensemble",
        ("--workdirs=in/run0,in/run1", "--output=out"),
        ("in/run0/*", "in/run1/*.json", "in/dev.json"),
        "scores.json",
    ),
    "triviaqa": Command(
        "paper.triviaqa",
        (
            "--qa=in/data/TriviaQA/qa/wikipedia-train.json",
            *("--evidence=in/data/TriviaQA/evidence", "--output=out/train.json"),
        ),
        ("in/data/TriviaQA/*/*.json", "in/data/TriviaQA/evidence/*/*"),
        "train.json",
    ),
    "paper table1": Command(
        "paper.__main__",
        (
            "table1",
            *_PAPER,
            "--systems=bert,gpt",
            "--tasks=rte",
            "--words=1000",
            _CORPUS,
        ),
        ("in/data/RTE/*", "in/corpus.txt"),
        "table1-bert-gpt-tiny/results.json",
    ),
    "paper table2": Command(
        "paper.__main__",
        ("table2", *_PAPER, _WEIGHTS),
        ("in/model/*.json", "in/data/SQuAD/*"),
        "table2-tiny-*/results.json",
    ),
    "paper table7": Command(
        "paper.__main__",
        ("table7", *_PAPER, _WEIGHTS),
        ("in/model/*.json", f"{_NER}/*"),
        "table7-tiny-*/results.json",
    ),
    "paper table1 bags": Command(
        "paper.__main__",
        (
            "table1",
            *_PAPER,
            "--systems=word2vec,random",
            "--tasks=rte",
            "--words=1000",
            _CORPUS,
        ),
        ("in/data/RTE/*", "in/corpus.txt"),
        "table1-word2vec-random-tiny/results.json",
    ),
    "paper table3": Command(
        "paper.__main__",
        ("table3", *_PAPER, "--data=in/more", _WEIGHTS),
        ("in/model/*.json", "in/more/squad/*"),
        "table3-tiny-*/results.json",
    ),
    "paper table4": Command(
        "paper.__main__",
        ("table4", *_PAPER, "--data=in/more", _WEIGHTS),
        ("in/model/*.json", "in/more/SWAG/*"),
        "table4-tiny-*/results.json",
    ),
    "paper table5": Command(
        "paper.__main__",
        ("table5", *_PAPER, "--tasks=sst2,squad", *_STEPS),
        ("in/data/SST-2/*", "in/data/SQuAD/*", "in/corpus.txt"),
        "table5-tiny/results.json",
    ),
    "paper table6": Command(
        "paper.__main__",
        ("table6", *_PAPER, "--tasks=sst2", *_STEPS),
        ("in/data/SST-2/*", "in/corpus.txt"),
        "table6-tiny/results.json",
    ),
    "paper table8": Command(
        "paper.__main__",
        ("table8", *_PAPER, "--tasks=ner,features", *_STEPS),
        (f"{_NER}/*", "in/corpus.txt"),
        "table8-tiny/results.json",
    ),
    "paper figure5": Command(
        "paper.__main__",
        ("figure5", *_PAPER, "--tasks=sst2", *_STEPS),
        ("in/data/SST-2/*", "in/corpus.txt"),
        "figure5-tiny/results.json",
    ),
    "paper imdb": Command(
        "paper.__main__",
        ("imdb", *_PAPER, "--data=in/more", *_STEPS),
        ("in/more/IMDB/*", "in/corpus.txt"),
        "imdb-tiny/results.json",
    ),
    "glue": Command(
        "paper.glue",
        (
            *("--data=in/data", "--tasks=rte", "--seeds=0,1", "--output=out"),
            *("--learning_rates=5e-5,3e-5", "--size=tiny"),
        ),
        ("in/data/RTE/*",),
        "",
    ),
    "sweep": Command(
        "sweeps.sweep",
        (
            f"--config={ROOT}/configs/finetune/glue.py:task=rte,size=tiny",
            *("--grid=optimizer.learning_rate=5e-5,3e-5", "--grid=seed=0,1"),
            "--output=out",
        ),
        (),
        "",
    ),
    "grid_spread": Command(
        "claims.grid_spread",
        (
            *("--data=in/data", "--task=rte", "--examples=4,8", "--seeds=3"),
            *("--batch_sizes=4", "--learning_rates=5e-5,3e-5", "--epochs=2"),
            *("--size=tiny", "--output=out", "--init_from=in/model"),
        ),
        ("in/data/RTE/*", "in/model/*.json"),
        "results.json",
    ),
    "english.table": Command(
        "english.table",
        (
            *("--data=in/data", "--tasks=rte,squad", "--seeds=2", "--output=out"),
            *("--size=tiny", "--init_from=in/model"),
        ),
        ("in/model/*.json", "in/data/RTE/*", "in/data/SQuAD/*"),
        "results.json",
    ),
    "by_kind": Command(
        "english.by_kind",
        ("--init_from=run", "--output=out/kinds.json"),
        _RUN,
        "kinds.json",
    ),
    "vectors": Command(
        "cbow.vectors",
        (_CORPUS, "--output=out", "--words=1000", "--data_dir=out/data"),
        ("in/corpus.txt",),
        "vocab.txt",
    ),
    "attention_plot": Command(
        "insight.attention_plot",
        (
            *("--input=in/who.safetensors", "--row=0", "--layer=0", "--head=1"),
            "--output=out/who.png",
        ),
        ("in/who.safetensors",),
        "who.png",
    ),
    "docstrings": Command(
        "english.docstrings",
        ("--output=out/docstrings.jsonl", "--each=2"),
        (),
        "docstrings.jsonl",
    ),
}


def write_data(folder: Path) -> None:
    """The data sets in `in/` of a home."""
    rng = random.Random("experiments")
    squad, rte, sst2 = (KINDS[name](rng).files for name in ("squad", "rte", "sst2"))
    several = [KINDS["ner"](rng).files for _ in range(4)]  # one is few for probes
    files = {f"data/NER/{n}": "\n".join(x[n] for x in several) for n in several[0]}
    files |= {f"data/RTE/{name}": text for name, text in rte.items()}
    files |= {f"data/SST-2/{name}": text for name, text in sst2.items()}
    files |= {f"data/SQuAD/{n[:-5]}-v1.1.json": text for n, text in squad.items()}
    files["dev.json"] = squad["dev.json"]
    squad2, swag = (KINDS[name](rng).files for name in ("squad2", "swag"))
    files |= {f"more/squad/{n[:-5]}-v2.0.json": text for n, text in squad2.items()}
    for name, usual in (("train", "train"), ("dev", "val")):
        files[f"more/SWAG/{usual}.csv"] = swag[f"{name}.csv"]
    files["corpus.txt"] = KINDS["pretraining"](rng).files["corpus.txt"]
    for split, count in (("train", 12), ("test", 8)):
        rows = [
            {"text": f"{('a dog', 'the fox')[n % 2]} {n}", "label": "np"[n % 2]}
            for n in range(count)
        ]
        files[f"reviews/{split}.jsonl"] = "".join(json.dumps(r) + "\n" for r in rows)
        files[f"more/IMDB/{split}.jsonl"] = files[f"reviews/{split}.jsonl"]
    uses = ("a\tthe {}", "a\ta go {} watch", "b\tseven it go {}", "b\tit {} over")
    files["senses.tsv"] = "".join(f"{use.format('cats')}\n" for use in uses)
    page = {"QuestionId": "q1", "Question": "where is it"}
    page["Answer"] = {"NormalizedAliases": ["lazy dog"]}
    page["EntityPages"] = [{"Filename": "Dog.txt"}]
    other = {**page, "QuestionId": "q2", "EntityPages": [{"Filename": "Fox.txt"}]}
    files["data/TriviaQA/qa/wikipedia-train.json"] = json.dumps({"Data": [page, other]})
    evidence = "data/TriviaQA/evidence/wikipedia"
    files[f"{evidence}/Dog.txt"] = "The lazy, lazy dog sleeps."
    files[f"{evidence}/Fox.txt"] = "The quick fox."
    for name, text in files.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    count, generator = 4, np.random.default_rng(0)
    heads = generator.dirichlet(np.ones(count), (1, 2, count)).astype(np.float16)
    about = json.dumps({"tokens": ["[CLS]", "a", "dog", "[SEP]"], "segments": [0] * 4})
    tensors, place = {"attentions_0": heads}, folder / "in" / "who.safetensors"
    save_file(tensors, place, {"attentions_0": about})
