# Two images: `client` pulls and runs libraries, and has no compiler; `full` has everything: server, worker, Ray.
#   docker build --target client -t dietcode-client .
ARG PYTHON_IMAGE=python:3.11.15-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
# gcc compiles the launcher. Debian keeps only the newest version of a package: there is none to pin.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY dietcode dietcode
COPY server server
COPY migrations migrations
COPY docs docs
COPY examples examples

FROM build AS build-client
RUN python -m venv /opt/dietcode \
    && /opt/dietcode/bin/pip install -c constraints.txt .

FROM build AS build-full
# With cuda as well, a worker builds for GPUs, and measures on one: docs/deploy.md.
ARG EXTRAS=server,postgres,ray
RUN python -m venv /opt/dietcode \
    && /opt/dietcode/bin/pip install -c constraints.txt ".[${EXTRAS}]"

FROM ${PYTHON_IMAGE} AS base
ARG VERSION=unknown
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="dietcode" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
# All that is ever written lies below one folder, and /tmp: the rest may be read-only.
ENV PATH=/opt/dietcode/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/var/lib/dietcode \
    DIETCODE_CACHE=/var/lib/dietcode/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 dietcode \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/dietcode --no-create-home --shell /usr/sbin/nologin dietcode \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/dietcode
WORKDIR /var/lib/dietcode
ENTRYPOINT ["dietcode"]

FROM base AS client
COPY --from=build-client /opt/dietcode /opt/dietcode
USER 10001:10001
HEALTHCHECK NONE
CMD ["--help"]

FROM base AS full
# gcc links what TVM compiles.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-full /opt/dietcode /opt/dietcode
ENV DIETCODE_SERVE_DATA_DIR=/var/lib/dietcode
USER 10001:10001
EXPOSE 8000
# The server's; a worker's is `dietcode worker --check`, as in docker-compose.yml.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["serve"]
