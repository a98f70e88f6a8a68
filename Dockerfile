# Trapline in a container: docker build -t trapline . && docker run --rm -it trapline demo
#
# The first stage builds the Debian package with the Rust of rust-toolchain.toml; the second has only Debian 12 and the package.
FROM rust:1.95.0-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake clang libclang-dev gcc g++ make pkg-config binutils dpkg-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /trapline
WORKDIR /trapline
RUN cargo build --release --locked --package trapline && scripts/package-deb target/release /package

FROM debian:bookworm-slim
COPY --from=build /package /package
RUN apt-get update \
    && apt-get install -y --no-install-recommends /package/*.deb \
    && rm -rf /var/lib/apt/lists/* /package
WORKDIR /work
ENTRYPOINT ["trapline"]
CMD ["--help"]
