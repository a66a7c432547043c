# hapax as an image: one static binary and the certificate authorities of the system.
#
#   docker build -t hapax .
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg REVISION=$(git rev-parse HEAD) .
#
# Every platform is compiled on the builder's own, so nothing is emulated. tests/image builds the last stage, and runs it,
# without an engine: it compiles from what the first stage copies, with the variables that the first stage sets.

FROM --platform=$BUILDPLATFORM rust:1.95.0-bookworm AS build
WORKDIR /hapax

# The compiler that the image brings, without the lints and the formatter that rust-toolchain.toml asks for besides.
ENV RUSTUP_TOOLCHAIN=1.95.0
# musl, for a binary that needs nothing else. Its allocator is slow, but the path of a request asks for no memory: a request
# takes half a percent to seven percent more instructions than with glibc, which is too little for an allocator of our own.
# ring has some C and assembly, which needs no C library: a compiler of the platform does for musl too.
ENV CC_x86_64_unknown_linux_musl=x86_64-linux-gnu-gcc
ENV CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc
ENV CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=x86_64-linux-gnu-gcc
ENV CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc

# amd64 or arm64, which an engine sets.
ARG TARGETARCH
RUN case $TARGETARCH in amd64) name=x86_64 ;; arm64) name=aarch64 ;; *) echo "no platform of hapax: $TARGETARCH" >&2; exit 1 ;; esac \
 && echo "$name" >/architecture \
 && rustup target add "$name-unknown-linux-musl" \
 && { command -v "$name-linux-gnu-gcc" \
   || { apt-get update && apt-get install -y --no-install-recommends \
        "gcc-$(echo "$name" | tr _ -)-linux-gnu" "libc6-dev-$TARGETARCH-cross"; }; }

COPY Cargo.toml Cargo.lock LICENSE ./
COPY src src
# What `hapax version` says of it.
ARG REVISION=unknown
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/hapax/target,sharing=locked \
    target="$(cat /architecture)-unknown-linux-musl" \
 && HAPAX_REVISION="$REVISION" cargo build --release --locked --bin hapax --target "$target" \
 && install -D "target/$target/release/hapax" /image/usr/local/bin/hapax \
 && install -D -m 644 LICENSE /image/usr/share/doc/hapax/LICENSE \
 && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hapax" \
      org.opencontainers.image.description="A Kafka proxy sidecar that makes \"written exactly once\" true and visible" \
      org.opencontainers.image.source="https://github.com/hapax-kafka/hapax" \
      org.opencontainers.image.documentation="https://github.com/hapax-kafka/hapax#readme" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /image/ /
# `hapax` by its name, in probes and by `docker exec`.
ENV PATH=/usr/local/bin
# Metrics and probes are asked for from outside of the container: loopback would keep them in.
ENV HAPAX_ADMIN_LISTEN=[::]:9180
EXPOSE 9180 19092
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/hapax"]
CMD ["run"]
