"""Model families besides BERT, for comparison; bert_jax imports none of them."""
