# Two images, each with one static binary:
#
#   docker build -t askd .                              the daemon
#   docker build -t askd-agent --target agent .         the agent's side, to copy into agents' images:
#                                                       COPY --from=askd-agent /askd /usr/local/bin/askd
#
# docs/docker.md says how to run them. BuildKit is needed (Docker 23 or newer has nothing else).

# Any image with Rust 1.89 or newer on Debian.
ARG RUST=rust:1.95-slim-bookworm
# The stage, or another image, that the binaries come from (tests/docker/run brings its own).
ARG BINARIES=build

FROM ${RUST} AS build
# musl: a static binary that looks up names by itself, which a static glibc cannot. The compiler is for ring.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev musl-tools \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    musl="$(uname -m)-unknown-linux-musl" \
    && export "CC_$(echo "$musl" | tr - _)=musl-gcc" \
    && export "CARGO_TARGET_$(echo "$musl" | tr a-z- A-Z_)_RUSTFLAGS=-Clink-arg=-Wl,-z,pack-relative-relocs" \
    && cargo build --locked -p askd --profile dist-agent --target "$musl" --no-default-features --features remote \
    && install -D "target/$musl/dist-agent/askd" /out/agent/askd \
    && cargo build --locked -p askd --profile dist --features postgres --target "$musl" \
    && install -D "target/$musl/dist/askd" /out/host/askd \
    && install -D -m 0644 /etc/ssl/certs/ca-certificates.crt /out/ca-certificates.crt \
    && install -d /out/data

FROM ${BINARIES} AS binaries

FROM scratch AS agent
# For askd over HTTPS. Where only the binary is copied, the image around it has them, or ASKD_CA_FILE names them.
COPY --from=binaries /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=binaries /out/agent/askd /askd
# Whoever copies it chooses the user; alone it needs none.
USER 65532:65532
ENTRYPOINT ["/askd"]

FROM scratch AS askd
# For calls to Slack and WhatsApp.
COPY --from=binaries /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY deploy/image.toml /etc/askd/askd.toml
COPY --from=binaries /out/host/askd /askd
# A new volume gets its owner from this folder.
COPY --from=binaries --chown=65532:65532 /out/data /var/lib/askd
# TMPDIR is for `demo`: there is no /tmp here.
ENV ASKD__DATA_DIR=/var/lib/askd \
    ASKD__HTTP__LISTEN=0.0.0.0:8484 \
    TMPDIR=/var/lib/askd
WORKDIR /var/lib/askd
USER 65532:65532
VOLUME /var/lib/askd
EXPOSE 8484
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/askd", "healthz"]
ENTRYPOINT ["/askd"]
CMD ["serve"]
