"""Names and answers by GPT and by ELMo through main. Stops: contract_test.py."""

import json
import random

import pytest
import runs
from runs import MESH, here, losses

from bert_jax import tokenization
from bert_jax.workdir import metrics
from families.gpt.vocabulary import BYTE_PAIRS

PEOPLE, PLACES = ["alice", "bob", "carol", "dave"], ["paris", "rome", "oslo", "lima"]
PLAIN = ["saw", "the", "old", "house", "and", "then", "went", "to", "a"]
CONFIG = """
extends = "finetune/TASK:size=tiny,model=MODEL"

def get_config(config):
    config.task.train_file = "FOLDER/train.KIND"
    config.task.dev_file = "FOLDER/dev.KIND"
    config.task.max_seq_length = 32
    config.optimizer.learning_rate = 1e-2
    config.train.num_steps = 40
    config.train.batch_size = 16
    config.train.log_every = 1
    config.train.early_stop = 0
    config.evaluate.batch_size = 16
    config.evaluate.checkpoint = "last"
    config.checkpoint.save_every = 20
    config.checkpoint.keep = 2
OWN
    return config
"""
GPT = """
    config.tokenizer.vocab_file = "FOLDER/vocab.json"
    config.model.hidden_size = 32
    config.model.num_attention_heads = 2
    config.model.num_hidden_layers = 1
    config.model.intermediate_size = 64
    config.model.max_position_embeddings = 32
"""
ELMO = """
    config.model.hidden_size = 8
    config.model.intermediate_size = 16
    config.task.filters = ("1:8", "2:8")
    config.task.activation = "tanh"  # larger random values
    config.task.lstm_size = 32
    config.task.dropout = 0.1
    config.optimizer.learning_rate = 2e-2
    config.task.max_characters = 12
"""
SQUAD = """
    config.task.max_query_length = 6
    config.task.doc_stride = 8
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences with people and places, and questions about some."""
    folder = tmp_path_factory.mktemp("names")
    rng = random.Random(0)
    texts = []
    for split, count in (("train", 160), ("dev", 41)):
        lines, paragraphs = [], []
        for number in range(count):
            tagged = [(word, "O") for word in rng.choices(PLAIN, k=rng.randint(2, 7))]
            person, place = rng.choice(PEOPLE), rng.choice(PLACES)
            pair = [(place, "B-LOC")], [(person, "B-PER"), ("jones", "I-PER")]
            for names in pair:
                at = rng.randint(0, len(tagged))
                tagged[at:at] = [*names, ("and", "O")]
            lines += [f"{word}\t{tag}\n" for word, tag in tagged] + ["\n"]
            context = " ".join(word for word, _ in tagged)
            texts.append(context)
            answers = [{"text": place, "answer_start": context.index(place)}]
            asked = {"id": str(number), "question": "which place", "answers": answers}
            paragraphs.append({"context": context, "qas": [asked]})
        (folder / f"{split}.conll").write_text("".join(lines))
        content = {"data": [{"paragraphs": paragraphs}]}
        (folder / f"{split}.json").write_text(json.dumps(content))
    learnt = BYTE_PAIRS.train([*texts, "which"], 60, lowercase=True)
    tokenization.save(learnt, folder)
    for task, kind in (("ner", "conll"), ("squad", "json")):
        for model, own in (("gpt", GPT), ("elmo", ELMO)):
            text = CONFIG.replace("OWN", own + (SQUAD if task == "squad" else ""))
            text = text.replace("TASK", task).replace("MODEL", model)
            text = text.replace("KIND", kind).replace("FOLDER", str(folder))
            (folder / f"{task}_{model}.py").write_text(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gpt", "elmo"])
@pytest.mark.parametrize("task", ["ner", "squad"])
def test_a_run(folder, tmp_path, task, model):
    """It learns on a mesh, and answers rows."""
    config, run = folder / f"{task}_{model}.py", tmp_path / "run"
    runs.run(config, run, *MESH)
    assert "f1" in metrics.read(run, "dev")[-1]
    assert losses(run)[-5:].mean() < 0.7 * losses(run)[0]

    text = "bob jones went to oslo"
    row = {"text": text} if task == "ner" else {"question": "which place",
                                                "context": text}  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = f"--input={tmp_path / 'rows.jsonl'}"
    out, _ = here("--mode=predict", f"--workdir={run}", source)
    found = json.loads(out)
    if task == "ner":
        assert len(found["tags"]) == 5 and found["words"] == text.split()
        assert all(text[e["start"] : e["end"]] == e["text"] for e in found["entities"])
    else:
        assert text[found["start"] : found["end"]] == found["answer"] != ""
    target = f"--output={tmp_path / 'model'}"
    _, err = here("--mode=export", f"--workdir={run}", target, status=2)
    assert err.count("\n") == 1 and "Hugging Face has no" in err
