# syntax=docker/dockerfile:1
#
# One target per program: docker build --target ingest-gateway -t substorm/ingest-gateway:dev .
# For several platforms: docker buildx build --platform linux/amd64,linux/arm64 --target operator .
#
# hack/images assembles the same images where no engine runs; a test there compares the two.

# For a build that does not change with the tag, give the image by digest:
# --build-arg GO_IMAGE=golang:1.26-bookworm@sha256:…
ARG GO_VERSION=1.26
ARG GO_IMAGE=golang:${GO_VERSION}-bookworm
ARG DEBIAN_IMAGE=debian:bookworm-slim

# Compiles on the platform of the machine at hand for the platform that is asked for.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS toolchain
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false GOWORK=off
WORKDIR /src

# What a static program may ask for: users, certificates of the public authorities, a place for temporary files.
FROM toolchain AS rootfs
COPY hack/images/rootfs /rootfs
RUN mkdir -p /rootfs/etc/ssl/certs \
 && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
 && install -d -m 1777 /rootfs/tmp

FROM toolchain AS source
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .

FROM source AS build-operator
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/operator ./operator/cmd

FROM source AS build-ingest-gateway
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/ingest-gateway ./ingest-gateway/cmd

FROM source AS build-archivist
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/archivist ./archivist/cmd

FROM source AS build-feed-server
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/feed-server ./feed-server/cmd

FROM source AS build-mirror-jobs
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/mirror-jobs ./mirror-jobs/cmd

# rsync and ssh with the libraries that they name, at the places where their loader looks.
FROM ${DEBIAN_IMAGE} AS programs-mirror-jobs
RUN apt-get update && apt-get install -y --no-install-recommends rsync openssh-client \
 && mkdir -p /out/etc && echo "hosts: files dns" > /out/etc/nsswitch.conf \
 && for program in /usr/bin/rsync /usr/bin/ssh; do \
      cp --parents -L $program $(ldd $program | grep -o '/[^ ]*') /usr/share/doc/rsync/copyright /usr/share/doc/openssh-client/copyright /out; \
    done

# A module of its own.
FROM source AS build-metrics-bridge
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -C ./metrics-bridge/cmd -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/metrics-bridge .

FROM source AS build-cli
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w -X github.com/substorm/substorm/internal/build.release=$VERSION" -o /out/substorm ./cli/cmd

FROM toolchain AS build-nats-server
ARG TARGETOS TARGETARCH
COPY hack/tools/nats ./
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o /out/nats-server github.com/nats-io/nats-server/v2

FROM toolchain AS build-minio
ARG TARGETOS TARGETARCH
COPY hack/tools/minio ./
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags="-s -w" -o /out/minio github.com/minio/minio

FROM scratch AS base
COPY --from=rootfs /rootfs/ /
ENV PATH=/
WORKDIR /
USER 65532:65532

FROM base AS operator
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm operator" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-operator /out/operator /operator
ENTRYPOINT ["/operator"]

FROM base AS ingest-gateway
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm ingest gateway" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-ingest-gateway /out/ingest-gateway /ingest-gateway
ENTRYPOINT ["/ingest-gateway"]

FROM base AS archivist
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm archivist" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-archivist /out/archivist /archivist
ENTRYPOINT ["/archivist"]

FROM base AS feed-server
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm feed server" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-feed-server /out/feed-server /feed-server
ENTRYPOINT ["/feed-server"]

FROM base AS mirror-jobs
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm mirror jobs, with rsync and ssh" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later AND BSD-2-Clause" \
      org.opencontainers.image.version="$VERSION"
COPY --from=programs-mirror-jobs /out/ /
ENV PATH=/:/usr/bin
COPY --from=build-mirror-jobs /out/mirror-jobs /mirror-jobs
ENTRYPOINT ["/mirror-jobs"]

FROM base AS metrics-bridge
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm metrics bridge" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-metrics-bridge /out/metrics-bridge /metrics-bridge
ENTRYPOINT ["/metrics-bridge"]

FROM base AS cli
ARG VERSION=dev
LABEL org.opencontainers.image.title="Substorm command line" \
      org.opencontainers.image.source="https://github.com/substorm/substorm" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-cli /out/substorm /substorm
ENTRYPOINT ["/substorm"]

FROM base AS nats-server
ARG VERSION=dev
LABEL org.opencontainers.image.title="NATS server" \
      org.opencontainers.image.source="https://github.com/nats-io/nats-server" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-nats-server /out/nats-server /nats-server
ENTRYPOINT ["/nats-server"]

FROM base AS minio
ARG VERSION=dev
LABEL org.opencontainers.image.title="MinIO server" \
      org.opencontainers.image.source="https://github.com/minio/minio" \
      org.opencontainers.image.licenses="AGPL-3.0-or-later" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build-minio /out/minio /minio
ENTRYPOINT ["/minio"]
