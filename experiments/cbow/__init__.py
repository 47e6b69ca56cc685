"""CBoW: a classifier on the mean of the words' vectors, below ELMo, GPT and BERT."""
