"""A small config of SQuAD's task."""

from configs.finetune import squad

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b", "?"]


def small_config(folder):
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    config = squad.get_config("tiny", "2.0")
    config.tokenizer.vocab_file = str(folder / "vocab.txt")
    config.model.hidden_size = 16
    config.model.num_attention_heads = 2
    config.model.intermediate_size = 32
    config.model.max_position_embeddings = 32
    config.task.max_seq_length = 12
    config.task.max_query_length = 4
    config.task.doc_stride = 3
    config.evaluate.batch_size = 4
    return config
