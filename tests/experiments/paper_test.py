"""The paper's tables by one command: its plans and its refusals."""

import json

import pytest
from paper_runs import command, data, kinds, planned

from bert_jax.errors import UserError
from experiments.paper import options, runs, tasks

__all__ = ["command", "data"]  # fixtures
OBJECTIVE = """from bert_jax.tasks.objectives import MASKED_LM, OBJECTIVES

extends, SCALE = "base", 1.0
OBJECTIVES["scaled"] = MASKED_LM


def get_config(config):
    config.task.objective = "scaled"
"""


def test_table_5_is_four_pretrainings_and_five_systems(data):
    plan = planned(data)
    assert kinds(plan).count("pre-training") == 4
    assert len(plan) == 4 + 5 * 5
    text = "\n".join(" ".join(run.arguments) for run in plan)
    for field in ("task.objective=ltr", "task.nsp_loss=False", "corpus.nsp=False"):
        assert text.count(field) == 1
    tuned = [run for run in plan if "--config.task.bilstm=True" in run.arguments]
    assert {run.needs[0].name.partition("-")[0] for run in tuned} == {"ltr"}
    assert len(tuned) == 5


def test_runs_that_tables_share_run_once(data):
    """The same folders for any table, requested tasks and output."""
    five, figure = (planned(data, table=name) for name in ("table5", "figure5"))
    assert {f.folder for f in figure if not f.needs} < {f.folder for f in five}
    elsewhere = planned(data, "--tasks=sst2", output="elsewhere")
    ours = {"/".join(run.folder.parts[1:]) for run in five}
    assert {"/".join(run.folder.parts[1:]) for run in elsewhere} < ours


def test_run_folder_name_has_what_shapes_the_run(data):
    first = planned(data)[0].folder
    assert planned(data)[0].folder == first
    for field in ("--config.train.num_steps=70", "--config.seed=1"):
        assert planned(data, field)[0].folder != first
    # Fine-tuning's fields rename fine-tuning alone.
    other = planned(data, "--finetuning.train.num_steps=70")
    assert other[0].folder == first and other[1].folder != planned(data)[1].folder


def test_pretraining_config_of_another_text_is_another_run(data, tmp_path):
    (tmp_path / "base.py").write_text(OBJECTIVE)
    text = 'extends = "base"\n\n\ndef get_config(config):\n    config.seed = 0\n'
    (tmp_path / "child.py").write_text(text)

    def name():
        return planned(data, f"--config={tmp_path / 'child.py'}")[0].folder.name

    first = name()
    assert name() == first
    (tmp_path / "base.py").write_text(OBJECTIVE.replace("1.0", "2.0"))
    assert name() != first


def test_figure_5_starts_from_checkpoints_that_are_kept(data):
    plan = planned(data, "--config.train.num_steps=9000", table="figure5", size="tiny")
    for run in plan:
        if run.kind == "pre-training":
            fields = dict(arg.partition("=")[::2] for arg in run.arguments)
            keep = int(fields["--config.checkpoint.keep_every"])
            assert keep == 1800
            assert keep % int(fields["--config.checkpoint.save_every"]) == 0
    mlm = [run for run in plan if run.needs == (plan[0].folder,)]
    starts = [run.arguments[1].rpartition("/")[2] for run in mlm]
    assert starts == ["1800", "3600", "5400", "7200", plan[0].folder.name]


def test_existing_weights_need_no_pretraining(data, tmp_path):
    folders = {"bert-base": (12, 768), "mine": (3, 16)}
    for name, (layers, hidden) in folders.items():
        (tmp_path / name).mkdir()
        fields = {
            **{"model_type": "bert", "architectures": ["BertForPreTraining"]},
            **{"num_hidden_layers": layers, "hidden_size": hidden},
            **{"num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 30},
            **{"max_position_embeddings": 512, "type_vocab_size": 2},
        }
        (tmp_path / name / "config.json").write_text(json.dumps(fields))
        (tmp_path / name / "model.safetensors").touch()
    base, mine = (str(tmp_path / name) for name in folders)
    given = ("table1", f"--data={data}", "--output=out", "--tasks=sst2,mrpc")
    found = options.parse([*given, f"--weights={base},{mine}"])
    plan = runs.plan(found)
    assert {run.kind for run in plan} == {"sst2", "mrpc"}
    assert all(not run.needs for run in plan)
    rows = {system.name: system.paper for system in found.table.systems}
    assert rows == {"BERT, base": "BERT-Base", mine: ""} and not found.table.claims
    for folder in (base, mine):  # one process a seed, as at Base
        own = [r for r in plan if f"--config.init_from={folder}" in r.arguments]
        assert len(own) == 2 * 5 and len({run.folder for run in own}) == 10
        assert all(":recipe=base" in run.arguments[0] for run in own)


def test_table_8_shares_the_papers_own_mix(data):
    plan = planned(data, table="table8")
    assert kinds(plan).count("pre-training") == kinds(plan).count("features") == 6
    texts = [" ".join(run.arguments) for run in plan if not run.needs]
    features = [run.arguments for run in plan if run.kind == "features"]
    assert all("--choices=sum_all" in arguments for arguments in features)
    assert "mask_fraction=0.0" in texts[5] and "random_fraction=1.0" in texts[5]


def test_tasks_without_data_are_left_out_and_named(data, command):
    (data / "MNLI" / "dev_matched.tsv").unlink()
    *_, out, _ = command("table5", "--seeds=2", "--plan")
    assert f"left out: mnli: {data}/MNLI has no dev_matched.tsv" in out
    given = ["table5", f"--data={data}", "--corpus=pydocs", "--tasks=mnli"]
    with pytest.raises(UserError, match=r"mnli: .*has no dev_matched\.tsv"):
        options.parse([*given, "--size=tiny"])


def test_data_folders_are_found(data, tmp_path):
    found = tasks.find("squad", [str(tmp_path), str(data)])
    assert found.fields == (
        f"task.train_file={data}/squad/train-v1.1.json",
        f"task.dev_file={data}/squad/dev-v1.1.json",
    )
    assert tasks.find("ner", [str(data)]).fields[1].endswith("NER/eng.testa")
    assert tasks.find("imdb", [str(data)]).config == ("text.py",)
    assert tasks.find("rte", ["tfds:glue"]).fields == ("task.data_dir=tfds:glue/rte",)
