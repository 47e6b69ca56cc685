"""What a pre-trained model knows of text that it has not seen, by kind of text.

    python -m experiments.english.by_kind --init_from=runs/english-mini \
        [--length=128] [--output=by_kind.json] [--config.FIELD=VALUE ...]

Masked LM loss, perplexity and accuracy beside the unigram's, and next sentence
accuracy, on the documents that the run held out: one row for each kind, told by the
names of the corpus's files (05-encyclopedia-2.jsonl.gz is of the kind encyclopedia).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax.config.phases import PhaseFields, phases
from bert_jax.data.rows import Batch
from bert_jax.errors import UserError
from bert_jax.runtime import terminal
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import sharding
from experiments.english import held_out
from experiments.lib import command_line, ending, kept, report

ALL = "all"


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Scores every kind; gives the text of the table."""
    parser = command_line.Parser("experiments.english.by_kind", __doc__)
    parser.add_argument("--init_from", required=True, help="a run or a model folder")
    parser.add_argument("--length", default=0, type=int, help="that of a phase")
    parser.add_argument("--output", type=Path, help="a file of JSON to write")
    options, fields = command_line.with_fields(parser, argv)
    with held_out.opened(options.init_from, fields) as (task, model):
        phase = _phase(task, options.length)
        held = held_out.read(task, options.init_from)
        outputs = jax.jit(task.outputs, out_shardings=sharding.replicated(model.mesh))

        def ask(batch: Batch) -> Any:
            size = task.config.evaluate.batch_size
            placed = sharding.place_batch(batch, model.mesh, size)
            with sharding.activate(model.mesh):
                return jax.device_get(outputs(model.params, placed))

        found: dict[str, dict[str, float]] = {}
        fetched = []
        for kind, documents in held.kinds.items():
            with held_out.batches(task, phase, documents, held) as (totals, batches):
                own = list(map(ask, batches))
            if own:  # else the training text has all sentences of these documents
                counts = {name: int(n) for name, n in totals.items()}
                found[kind] = {**task.results("dev", own).scores, **counts}
                fetched += own
        if not found:
            raise UserError(
                f"{options.init_from}: the training text has every held-out sentence; "
                "nothing is left to score"
            )
        total = task.results("dev", fetched).scores
        names, kinds = ("documents", "sentences"), found.values()
        found[ALL] = {**total, **{name: sum(x[name] for x in kinds) for name in names}}
    facts = report.facts("experiments.english.by_kind", argv)
    results = {
        "facts": facts,
        "length": phase.max_seq_length,
        "training_documents": held.trained,
        "held_out_documents_left_out": held.copies,
        "kinds": found,
    }
    if options.output:
        kept.write(options.output, results)
    return text(results)


def text(results: Mapping[str, Any]) -> str:
    """The table, with what was held out and left out."""
    rows = [
        (
            *(kind, f"{own['documents']:,}", f"{own['sentences']:,}"),
            f"{math.exp(own['unigram_loss']):.1f}",
            f"{own['perplexity']:.2f}",
            f"{own['unigram_loss'] - own['masked_lm_loss']:.2f}",
            f"{100 * own['masked_lm_accuracy']:.1f}",
            _percent(own.get("next_sentence_accuracy")),
            _percent(own.get("next_sentence_majority")),
        )
        for kind, own in results["kinds"].items()
    ]
    header = (
        *("held out", "documents", "sentences", "unigram perplexity"),
        *("masked LM perplexity", "gain, nats", "accuracy, %"),
        *("next sentence, %", "majority, %"),
    )
    about = report.listed(results["facts"])
    return (
        f"{terminal.table(rows, header)}\n\nrows of {results['length']} tokens; "
        f"{results['training_documents']:,} documents were trained on, and none of "
        "these has the words of one "
        f"({results['held_out_documents_left_out']} that had are left out, and every "
        "sentence that one has); a random second sentence is of the same kind\n\n"
        f"{about}"
    )


def _phase(task: Pretraining, length: int) -> PhaseFields:
    there = {phase.max_seq_length: phase for phase in phases(task.config)}
    if length and length not in there:
        raise UserError(
            f"--length={length}: this model was trained at {', '.join(map(str, there))}"
        )
    return there[length or min(there)]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


if __name__ == "__main__":
    ending.start(main)
