# Three images from one source:
#
#   docker build --target operator   -t rljob-operator .
#   docker build --target rlcore-cpu -t rlcore-cpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu .
#   docker build --target rlcore-gpu -t rlcore-gpu .
#
# BASE_IMAGE is any Debian with Python 3.11 or newer and its venv module. Without TORCH_INDEX torch comes from PyPI, with
# its CUDA libraries: 4 GB that a CPU never needs. Dependencies lie in layers of their own below the code: a change of
# code moves a few hundred kilobytes.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# What is installed, as files whose content decides whether the layers below are made anew.
FROM ${BASE_IMAGE} AS requirements
WORKDIR /build
COPY pyproject.toml docker/requirements.py ./
COPY operator/pyproject.toml operator/
RUN python3 requirements.py operator/pyproject.toml pyproject.toml > operator.txt \
 && python3 requirements.py pyproject.toml:train,cluster,kube,atari,box2d,classic,minari,minatar,mujoco,pettingzoo,s3,gcs > training.txt

FROM ${BASE_IMAGE} AS tools
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir --quiet "hatchling>=1.25"

# The packages of this repository.
FROM tools AS wheels
WORKDIR /build
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY rlcore rlcore
COPY operator operator
RUN for project in . ./operator; do \
      /opt/tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels $project || exit 1; \
    done

FROM tools AS operator-packages
RUN python3 -m venv --without-pip /opt/rlcore
COPY constraints.txt /build/
COPY --from=requirements /build/operator.txt /build/
RUN /opt/tools/bin/pip --python /opt/rlcore/bin/python install --no-cache-dir --quiet \
      --constraint /build/constraints.txt --requirement /build/operator.txt

# The same environment with nothing but the code in it.
FROM tools AS operator-code
RUN python3 -m venv --without-pip /opt/rlcore
COPY --from=wheels /wheels /wheels
RUN /opt/tools/bin/pip --python /opt/rlcore/bin/python install --no-cache-dir --quiet --no-deps --no-index /wheels/*.whl

FROM ${BASE_IMAGE} AS operator
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="rljob-operator" \
      org.opencontainers.image.description="Kubernetes operator for RLJob: distributed reinforcement learning on KubeRay" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/rlcore/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=operator-packages /opt/rlcore /opt/rlcore
COPY --from=operator-code /opt/rlcore /opt/rlcore
USER 65532:65532
WORKDIR /tmp
CMD ["python", "-m", "rljob_operator"]

# torch alone is most of an image, and changes least.
FROM ${BASE_IMAGE} AS torch
# KubeRay's probes call wget; Ray asks for the name of its user.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --home-dir /workspace rlcore \
 && python3 -m venv /opt/rlcore
COPY constraints.txt /build/
ARG TORCH_INDEX=
RUN env ${TORCH_INDEX:+PIP_INDEX_URL=$TORCH_INDEX} /opt/rlcore/bin/pip install --no-cache-dir --quiet \
      $(grep -E '^torch==' /build/constraints.txt)

FROM torch AS training-packages
COPY --from=requirements /build/training.txt /build/
RUN /opt/rlcore/bin/pip install --no-cache-dir --quiet --constraint /build/constraints.txt --requirement /build/training.txt

FROM training-packages AS training
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/rlcore/bin:$PATH PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0
COPY --from=wheels /wheels /tmp/wheels
RUN /opt/rlcore/bin/pip install --no-cache-dir --quiet --no-deps --no-index /tmp/wheels/rlcore-*.whl
USER 1000:1000
WORKDIR /workspace

FROM training AS rlcore-gpu
LABEL org.opencontainers.image.title="rlcore-gpu" \
      org.opencontainers.image.description="rlcore with Ray and torch for learners with GPUs"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM training AS rlcore-cpu
LABEL org.opencontainers.image.title="rlcore-cpu" \
      org.opencontainers.image.description="rlcore with Ray and torch for drivers, evaluators and learners without GPUs"
