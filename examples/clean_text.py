"""Cleans text with datatrove, on this machine, before it is prepared.

    pip install 'datatrove[io,processing]==0.10.1' 'spacy==3.8.18'
    python examples/clean_text.py pages cleaned --against=dev.tsv --tasks=8
    python -m bert_jax.main --mode=prepare --config=configs/base.py \
        --config.corpus.sources="('jsonl:cleaned/text/*.jsonl.gz',)"

`pages` has JSON Lines, compressed or not, with a `text` each. Documents are dropped
that share 13 words in a row with a line of an `--against` file (Brown et al. 2020),
have fewer than 50 words, are not in the language, or nearly repeat another one by
MinHash (Lee et al. 2022). Of the others, lines without a full stop at their end and
notes about cookies or JavaScript are dropped: the rules of C4 (Raffel et al. 2020), for
web pages with a paragraph per line, not for books with broken lines. A second start
continues, so other text or other options need another folder. On a cluster,
SlurmPipelineExecutor or RayPipelineExecutor take the same steps.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline import dedup, filters
from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.text import ngrams, simplify_text

OVERLAP = NGramsDecontConfig(n_grams=13)
MINHASH = dedup.MinhashConfig(num_buckets=14, hashes_per_bucket=8)


def write_index(against: Sequence[Path], folder: Path) -> NGramsDecontFilter:
    """Writes hashes of the files' 13-word sequences and returns the step that reads
    it."""
    step = NGramsDecontFilter(str(folder), OVERLAP)
    hashes = set()
    for line in (line for path in against for line in path.open(encoding="utf-8")):
        text = simplify_text(line, OVERLAP.norm_config)
        sequences = ngrams(step.tokenizer.word_tokenize(text), OVERLAP.n_grams)
        hashes |= {step.hash_func(" ".join(words)) for words in sequences}
    folder.mkdir(parents=True, exist_ok=True)
    index = np.array(sorted(hashes), OVERLAP.hash_config.np_descr)
    index.tofile(folder / "against.index.hashes")
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="cleans a folder of JSON Lines")
    parser.add_argument("pages", type=Path)
    parser.add_argument("cleaned", type=Path)
    parser.add_argument("--against", type=Path, nargs="*", default=[])
    parser.add_argument("--language", help="a code such as en; downloads a model")
    parser.add_argument("--tasks", type=int, default=2, help="processes")
    args = parser.parse_args()
    home: Path = args.cleaned

    def run(name: str, tasks: int, *steps: object) -> None:
        logs = str(home / "logs" / name)
        LocalPipelineExecutor(list(steps), tasks, args.tasks, logs).run()

    def folder(name: str) -> str:
        return str(home / name)

    judges = [write_index(args.against, home / "index")] if args.against else []
    judges += [filters.LanguageFilter([args.language])] if args.language else []
    lines = filters.C4QualityFilter(min_num_sentences=-1, filter_curly_bracket=False)
    words = filters.LambdaFilter(lambda document: len(document.text.split()) >= 50)
    kept = JsonlWriter(folder("kept"))
    run("filter", args.tasks, JsonlReader(str(args.pages)), *judges, lines, words, kept)
    # Both passes over `kept` must read it in the same number of tasks.
    read = JsonlReader(folder("kept"))
    signatures = dedup.MinhashDedupSignature(folder("signatures"), MINHASH)
    run("signatures", args.tasks, read, signatures)
    pairs, copies = folder("pairs"), folder("copies")
    find = dedup.MinhashDedupBuckets(folder("signatures"), pairs, config=MINHASH)
    run("pairs", MINHASH.num_buckets, find)
    run("copies", 1, dedup.MinhashDedupCluster(pairs, copies, MINHASH))
    unique = dedup.MinhashDedupFilter(copies)
    run("text", args.tasks, read, unique, JsonlWriter(folder("text")))


if __name__ == "__main__":
    main()
