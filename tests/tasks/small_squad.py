"""A small config of SQuAD's task, and a part of its real files."""

import json

from configs.finetune import squad

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "?"]


def small_config(folder):
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    config = squad.get_config("tiny", "2.0")
    config.tokenizer.vocab_file = str(folder / "vocab.txt")
    config.model.update(hidden_size=16, num_attention_heads=2, intermediate_size=32)
    config.model.max_position_embeddings = 32
    config.task.update(max_seq_length=12, max_query_length=4, doc_stride=3)
    config.evaluate.batch_size = 4
    return config


def every(step, path, folder):
    """Writes every `step`-th paragraph of a real file, from all its articles, to a file
    of the same name."""
    source = json.loads(path.read_text(encoding="utf-8"))
    articles = [article["paragraphs"] for article in source["data"]]
    paragraphs = [paragraph for some in articles for paragraph in some]
    source["data"] = [{"title": "", "paragraphs": paragraphs[::step]}]
    (folder / path.name).write_text(json.dumps(source), encoding="utf-8")
    return folder / path.name


def gold_answer(text, start):
    """Returns an answer in its context."""
    return {"text": text, "answer_start": start}


def squad_row(name, text, context, answers=None, impossible=False):
    """Returns a row of SQuAD, as its reader makes it."""
    row = {"id": name, "question": text, "context": context, "answers": answers}
    return row | {"is_impossible": impossible}
