"""The modules of each `config.architecture`; their parameters' names are the same."""

from bert_jax.models.encoder import Bert
from bert_jax.models.heads import BertForPreTraining
from bert_jax.registry import Registry

# MODULE(config, name=...), called as `Bert` is; its parameters are under `bert`.
TRUNKS = Registry({"bert": Bert, "gpt": "bert_jax.models.gpt:Gpt"})
# MODULE(config), called as `BertForPreTraining` is.
PRETRAINING = Registry(
    {"bert": BertForPreTraining, "gpt": "bert_jax.models.gpt:GptForPreTraining"}
)
