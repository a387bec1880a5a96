# syntax=docker/dockerfile:1
# The scheduler: no torch, no GPU, about 90 MB beyond Python.
#   docker build -f deploy/docker/scheduler.Dockerfile -t kerneldyno-scheduler .
# constraints.txt was tested with Python 3.11, hence the base.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# The release that this is, if it is one; the build fails when the sources are of another.
ARG VERSION=
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
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
RUN python -m venv /opt/kerneldyno \
 && /opt/kerneldyno/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[scheduler,postgres,tracing]' \
 && export PATH="/opt/kerneldyno/bin:$PATH" \
 && { test -z "${VERSION}" || test "$(kerneldyno --version)" = "kerneldyno ${VERSION}"; }

FROM ${PYTHON_IMAGE}
ARG VERSION=
LABEL org.opencontainers.image.title="KernelDyno scheduler" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# The journal. A volume that is mounted here has to belong to uid 10001 (Kubernetes: fsGroup).
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin kerneldyno \
 && install -d -o kerneldyno -g kerneldyno -m 0700 /var/lib/kerneldyno
COPY --from=build /opt/kerneldyno /opt/kerneldyno
ENV PATH=/opt/kerneldyno/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001:10001
VOLUME /var/lib/kerneldyno
EXPOSE 50051 9464
# A standby is healthy, too: it is asked whether it could take over. With TLS the orchestrator's probe has to name CA and
# certificate: see docs/deploying.md.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["python", "-m", "kerneldyno.deploy.health", "127.0.0.1:50051", "--service", "readiness"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "kerneldyno.scheduler"]
# A port for others needs --tls-cert and --tls-key, or --insecure; without either it refuses to start, and says so.
CMD ["--listen", "0.0.0.0:50051", "--metrics", "127.0.0.1:9464", "--store", "sqlite:/var/lib/kerneldyno/scheduler.sqlite"]
