# syntax=docker/dockerfile:1
# The evaluator for NVIDIA GPUs.
#   docker build -f deploy/docker/evaluator.Dockerfile -t kerneldyno-evaluator .
#
# The base is a *devel* image: candidates of the cuda backend are compiled by nvcc against CUDA's headers, which the
# runtime images leave out. Its CUDA (13.0) is that of the torch wheel: torch refuses to build extensions with an nvcc of
# another major version. Change both together, for example CUDA_IMAGE=nvidia/cuda:12.9.1-devel-ubuntu24.04,
# TORCH_CUDA=cu129 and TORCH_INDEX=the root of PyTorch's own wheel index (its installation page names it). The driver comes from the host (NVIDIA Container Toolkit); CUDA 13 asks for 580 or newer.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${CUDA_IMAGE}
ARG TORCH_CUDA=cu130
# Empty: torch as the default index has it, which is built for CUDA.
ARG TORCH_INDEX=
ARG DEBIAN_FRONTEND=noninteractive
# Python.h and a C++ compiler: Triton's launchers and torch's extensions are compiled at run time. tini reaps what runners leave.
# Versions are those of the base's own release, which its tag names.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-dev python3-venv g++ tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --create-home --shell /usr/sbin/nologin kerneldyno \
 && install -d -o kerneldyno -g kerneldyno -m 0700 /var/lib/kerneldyno
# Below /opt, which candidates behind the sandbox may read; they could not read /root.
RUN python3 -m venv /opt/kerneldyno
ENV PATH=/opt/kerneldyno/bin:$PATH \
    CUDA_HOME=/usr/local/cuda \
    PYTHONUNBUFFERED=1

WORKDIR /source
# torch first and alone: gigabytes that change more rarely than our source. Of equal versions pip takes the one with +cuNNN.
COPY constraints.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt \
        ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}/${TORCH_CUDA}"} torch
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY client client
COPY scheduler scheduler
COPY evaluator_server evaluator_server
COPY training training
COPY gateway gateway
COPY testing testing
COPY deploy/python deploy/python
COPY cli cli
COPY corpus/attacks corpus/attacks
COPY corpus/honest corpus/honest
COPY corpus/problems corpus/problems
# The release that this is, if it is one; the build fails when the sources are of another.
ARG VERSION=
LABEL org.opencontainers.image.title="KernelDyno evaluator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# nvcc and torch must be of one major version: better known now than in every candidate's build.
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[evaluator,tracing]' \
 && { test -z "${VERSION}" || test "$(kerneldyno --version)" = "kerneldyno ${VERSION}"; } \
 && python -c "import subprocess, torch; version = subprocess.check_output(['nvcc', '--version'], text=True); \
assert f'release {torch.version.cuda.split(\".\")[0]}.' in version, (torch.version.cuda, version)"

WORKDIR /home/kerneldyno
USER 10001:10001
# The build cache. A volume that is mounted here has to belong to uid 10001 (Kubernetes: fsGroup).
VOLUME /var/lib/kerneldyno
# Nothing is exposed: the evaluator dials the scheduler, and its own port stays on loopback.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-m", "kerneldyno.deploy.health", "127.0.0.1:50052"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "python", "-m", "kerneldyno.evaluator"]
# Better no service than one whose candidates are not held: see "Sandbox in containers" in docs/deploying.md.
CMD ["--sandbox", "require", "--build-cache", "/var/lib/kerneldyno/builds"]
