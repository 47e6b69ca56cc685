"""Model families other than BERT, for comparison. bert_jax imports none of them."""
