"""Classifiers, regression and vectors of texts for scikit-learn, with its conventions
(the extra `sklearn`).

    from bert_jax.estimator import BertClassifier

    model = BertClassifier().fit(texts, labels)
    model.predict_proba(["a text"])

They work in pipelines, `cross_val_score` and `GridSearchCV` (with `n_jobs=1`: training
takes all cores), and can be pickled. X is a list, an array or a column of texts, or for
pairs has two columns.
"""

from bert_jax.estimator.finetuned import BertClassifier, BertRegressor
from bert_jax.estimator.vectors import BertFewShot, BertVectors

__all__ = ("BertClassifier", "BertFewShot", "BertRegressor", "BertVectors")
