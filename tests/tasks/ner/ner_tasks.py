"""Tasks of tagged words, of a few letters each."""

from configs.finetune import ner
from tests.tasks.small_texts import resolved

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [*"abcdefghijklmnopqrstuvwxyzPU.", *(f"##{c}" for c in "abcdefghijklmnop")]
TRAIN = "Pa\tB-X\nb\tI-X\n\nc\tO\nd\tB-Y\n"


def task_in(folder):
    """Makes a task of the texts of its files."""
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))

    def make(train=TRAIN, dev="", test="", vocab=None, lowercase=False, **fields):
        config = ner.get_config("tiny")
        config.tokenizer.vocab_file = str(vocab or folder / "vocab.txt")
        config.tokenizer.lowercase = lowercase
        for split, text in {"train": train, "dev": dev, "test": test}.items():
            if text:
                path = folder / f"{split}.conll"
                path.write_text(text, encoding="utf-8", newline="")
                config.task[f"{split}_file"] = str(path)
        config.task.update(fields)
        return resolved(config)

    return make


def encoded(task, split):
    return task.encode(task.examples(split), split)


def pieces(task, feature):
    return [task.tokenizer.id_to_token(i) for i in feature.columns["input_ids"]]
