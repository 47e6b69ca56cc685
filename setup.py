"""The packages of a wheel. pyproject.toml has everything else."""

import setuptools

setuptools.setup(
    packages=[
        *setuptools.find_namespace_packages(include=["bert_jax*"]),
        *("bert_jax.configs", "bert_jax.configs.finetune"),
    ],
    package_dir={"bert_jax.configs": "configs"},
)
