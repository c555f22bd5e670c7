# Jobs on Spark: Debian's Java 17 and Python 3.11, PySpark with its connectors to Kafka, Delta and S3, duebridge.
# Spark's own launchers are bash scripts, so this image has a shell.
ARG DEBIAN=docker.io/library/debian:bookworm-slim

FROM ${DEBIAN} AS base
# Java's scripts make links to its pages, and fail where that is not possible. Hadoop wants the user
# to have a name, Arrow the system's time zones.
RUN mkdir -p /usr/share/man/man1 /etc/duebridge && apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates openjdk-17-jre-headless procps python3.11 tini tzdata \
    && rm -rf /var/lib/apt/lists/* /var/cache/* \
    && groupadd --gid 10001 duebridge \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin duebridge

FROM base AS dependencies
RUN apt-get update && apt-get install -y --no-install-recommends maven python3-venv
WORKDIR /source
COPY deploy/images/build.lock deploy/images/spark.lock deploy/local/spark/pom.xml ./
COPY deploy/local/spark-s3/pom.xml s3.xml
RUN python3.11 -m venv /tools && /tools/bin/pip install --require-hashes --requirement build.lock \
    && python3.11 -m venv --without-pip /opt/duebridge \
    && /tools/bin/pip --python /opt/duebridge/bin/python install \
        --require-hashes --no-compile --requirement spark.lock \
    && for list in pom.xml s3.xml; do \
        mvn -q -B -f "$list" dependency:copy-dependencies -DincludeScope=runtime \
            -DoutputDirectory=/opt/duebridge/lib/python3.11/site-packages/pyspark/jars || exit 1; \
    done \
    && find /opt/duebridge/lib -name '*.pyi' -delete \
    && find /opt/duebridge/lib -type d \( -name tests -o -name kafkatest -o -path '*/pyspark/examples' \
        -o -path '*/pyarrow/include' \) -prune -exec rm -r {} + \
    # Some packages bring templates that are named like Python, and are not: hence `|| true`.
    && { python3.11 -m compileall -q --invalidation-mode checked-hash /opt/duebridge/lib || true; }

FROM dependencies AS application
COPY . .
RUN /tools/bin/python -m hatchling build -t wheel -d /wheel \
    && /tools/bin/pip --python /opt/duebridge/bin/python install \
        --no-deps --no-compile --root /application /wheel/*.whl \
    && python3.11 -m compileall -q --invalidation-mode checked-hash -s /application /application
COPY --chmod=755 deploy/images/spark_entrypoint.py /application/opt/duebridge/bin/spark-entrypoint

FROM base
ARG VERSION=0.2.0
ARG REVISION=unknown
ARG SOURCE=
COPY --from=dependencies /opt/duebridge /opt/duebridge
COPY --from=application /application /
ENV PATH=/opt/duebridge/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    PYSPARK_PYTHON=/opt/duebridge/bin/python \
    SPARK_HOME=/opt/duebridge/lib/python3.11/site-packages/pyspark \
    SPARK_LOCAL_DIRS=/tmp \
    DUEBRIDGE_CONFIG=/etc/duebridge/duebridge.yaml
LABEL org.opencontainers.image.title=duebridge-spark \
    org.opencontainers.image.description="Delayed delivery for Kafka and RabbitMQ: jobs on Spark" \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=${VERSION} \
    org.opencontainers.image.revision=${REVISION} \
    org.opencontainers.image.source=${SOURCE}
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "-s", "--", "/opt/duebridge/bin/spark-entrypoint"]
CMD ["spark", "--help"]
