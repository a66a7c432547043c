# Every package the tests install, and nothing else names one. Sourced by tests/lib/install.sh.

# Debian: kcat (a librdkafka 2.0 client), prometheus (promtool), iproute2 (ss), procps (pid tools), jq.
APT_PACKAGES=(kcat prometheus iproute2 procps jq)

# Maven: org.apache.kafka:kafka_2.13 and :kafka-tools of each version. The first is the default broker.
KAFKA_VERSION=4.4.0
# Kafka 4 declares no logging back-end of its own.
LOG4J_VERSION=2.24.3

# PyPI, into a virtual environment of the tests.
PYTHON_PACKAGES=(confluent-kafka==2.16.1)

# Go modules are pinned by tests/kfaked/go.mod (franz-go's kfake) and tests/clients/go/go.mod (franz-go 1.22.3).
GO_PROGRAMS=(kfaked clients/go)
