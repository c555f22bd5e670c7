# Jobs on Spark: Debian's Java 17 and Python 3.11, PySpark with its Kafka connector, the project.
# Spark's own launchers are scripts of bash, so here there is a shell. What the image is beyond its
# files is said in its last stage, which build.py reads too.
ARG DEBIAN=docker.io/library/debian:bookworm-slim

FROM ${DEBIAN} AS base
# Java's scripts make links to its pages, and fail where that is not possible.
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates openjdk-17-jre-headless procps python3.11 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/*

# Runs on the machine that builds, whatever the image is for.
FROM --platform=$BUILDPLATFORM ${DEBIAN} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates maven python3-venv
WORKDIR /source
COPY pyproject.toml requirements.lock deploy/images/locked.py ./
COPY deploy/local/spark/pom.xml deploy/local/spark/
RUN mkdir -p deploy/images && mv locked.py deploy/images && python3 -m venv /tools \
    && python3 deploy/images/locked.py images > /tools/requirements.txt \
    && /tools/bin/pip install --require-hashes --requirement /tools/requirements.txt \
    && mvn -q -B -f deploy/local/spark/pom.xml dependency:copy-dependencies \
        -DoutputDirectory=/jars -DincludeScope=runtime
COPY . .
COPY --from=base / /base
ARG TARGETPLATFORM=linux/amd64
RUN /tools/bin/python -m hatchling build -t wheel -d /wheel \
    && /tools/bin/python -m deploy.images.tree spark --platform ${TARGETPLATFORM} \
        --base /base --wheel /wheel/*.whl --jars /jars --into /image

FROM base
ARG VERSION=0.1.0
ARG REVISION=unknown
COPY --from=build /image/dependencies /
COPY --from=build /image/application /
ENV PATH=/opt/duebridge/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONPYCACHEPREFIX=/opt/duebridge/bytecode \
    PYTHONDONTWRITEBYTECODE=1 \
    PYSPARK_PYTHON=/opt/duebridge/bin/python \
    SPARK_HOME=/opt/duebridge/lib/python3.11/site-packages/pyspark \
    SPARK_LOCAL_DIRS=/tmp \
    DUEBRIDGE_CONFIG=/etc/duebridge/duebridge.yaml
LABEL org.opencontainers.image.title=duebridge-spark \
    org.opencontainers.image.description="Delayed delivery for Kafka and RabbitMQ: jobs on Spark" \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION}
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/duebridge/bin/spark-entrypoint"]
CMD ["spark", "--help"]
