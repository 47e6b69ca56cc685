"""Small configs of tasks on texts, and the rows of their files."""

import jax

from bert_jax.tasks import create_task
from bert_jax.tasks.finetuning import sort_outputs
from bert_jax.tasks.task import Results

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "good", "bad"]
PIECES += ["##a", "##b"]


def shrunk(config, folder):
    """Makes a config small, with a vocabulary in the folder."""
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    config.tokenizer.vocab_file = str(folder / "vocab.txt")
    config.model.update(num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
    config.model.update(intermediate_size=32, max_position_embeddings=16)
    config.task.max_seq_length = 16
    config.evaluate.batch_size = 2
    config.train.num_steps = 1
    return config


def resolved(config):
    """Returns the task of a config, its fields filled in from the data."""
    task = create_task(config)
    task.resolve()
    return task


def text_row(index, text="a", text_b=None, label=None):
    """Returns a row of a task on texts, as `read` and `parse` make it."""
    return {"id": index, "text": text, "text_b": text_b, "label": label}


def choice_row(context, endings, label=None):
    """Returns a row of SWAG, as `read` and `parse` make it."""
    return {"context": context, "endings": list(endings), "label": label}


def evaluated(task, params, split):
    """Returns a split's results, and the answer to each of its examples."""
    step = jax.jit(task.outputs)
    batches = task.evaluation_batches(split, 0, slice(None))
    fetched = [jax.device_get(step(params, batch)) for batch in batches]
    size = task.config.evaluate.batch_size
    ordered = sort_outputs(task._rows(split), size, fetched)
    answers = task.definition.decode_answers(
        task.examples(split), task.encode_examples(split), ordered
    )
    return task.results(split, fetched), answers


def write_predictions(task, folder, split, rows, answers):
    """Writes a task's prediction files of some answers."""
    files = task.definition.prediction_files(split, rows, answers)
    Results({}, files=lambda: files).write(folder)
