# docker build -t bert-jax .                                      on a CPU
# docker build -t bert-jax --build-arg ACCELERATOR=cuda13 .       on NVIDIA's GPUs
# docker run --rm -v "$PWD:/work" bert-jax --config=tiny          (GPUs: --gpus all)
FROM python:3.12-slim
ARG ACCELERATOR=
WORKDIR /src
COPY . .
# jax's CUDA wheels have NVIDIA's libraries: the host needs only its driver.
RUN pip install --no-cache-dir --constraint requirements.txt '.[pretrain,serve,gcs]' "jax[${ACCELERATOR}]" && rm -rf /src/*
WORKDIR /work
ENTRYPOINT ["bert-jax"]
