# The bridge worker: Debian's Python 3.11, the locked packages, the project; no shell, no package
# manager. What the image is beyond its files is said in its last stage, which build.py reads too.
ARG DEBIAN=docker.io/library/debian:bookworm-slim
ARG BASE=gcr.io/distroless/python3-debian12:latest

FROM ${BASE} AS base

# Runs on the machine that builds, whatever the image is for: of the image nothing is run.
FROM --platform=$BUILDPLATFORM ${DEBIAN} AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3-venv
WORKDIR /source
COPY pyproject.toml requirements.lock deploy/images/locked.py ./
RUN mkdir -p deploy/images && mv locked.py deploy/images && python3 -m venv /tools \
    && python3 deploy/images/locked.py images > /tools/requirements.txt \
    && /tools/bin/pip install --require-hashes --requirement /tools/requirements.txt
COPY . .
COPY --from=base / /base
ARG TARGETPLATFORM=linux/amd64
RUN /tools/bin/python -m hatchling build -t wheel -d /wheel \
    && /tools/bin/python -m deploy.images.tree worker --platform ${TARGETPLATFORM} \
        --base /base --wheel /wheel/*.whl --into /image

FROM base
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=build /image/dependencies /
COPY --from=build /image/application /
ENV PATH=/opt/duebridge/bin:/usr/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONPYCACHEPREFIX=/opt/duebridge/bytecode \
    PYTHONDONTWRITEBYTECODE=1 \
    DUEBRIDGE_CONFIG=/etc/duebridge/duebridge.yaml \
    DUEBRIDGE_HEALTH_PORT=8080
LABEL org.opencontainers.image.title=duebridge \
    org.opencontainers.image.description="Delayed delivery for Kafka and RabbitMQ: the bridge worker" \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}
EXPOSE 8080
USER 10001:10001
WORKDIR /etc/duebridge
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/duebridge/bin/duebridge"]
CMD ["run"]
