# Every package that the tests install; nothing else names one. Sourced by tests/lib/install.sh.

# Debian: kcat (a librdkafka 2.0 client), prometheus (promtool), unzip (message schemas), iproute2 (ss), procps (pid tools), jq, util-linux (flock),
# mandoc (the manual page).
APT_PACKAGES=(kcat prometheus unzip iproute2 procps jq util-linux mandoc)

# Maven: org.apache.kafka:kafka_2.13 and :kafka-tools of that version, the default broker and the Java client.
KAFKA_VERSION=4.4.0
# Kafka 4 declares no logging back-end of its own: org.apache.logging.log4j:log4j-slf4j-impl and :log4j-core.
LOG4J_VERSION=2.24.3

# PyPI, into a virtual environment of the tests: clients, and a second opinion on configuration files and their schema.
PYTHON_PACKAGES=(confluent-kafka==2.16.1 kafka-python==3.0.12 jsonschema==4.26.0 PyYAML==6.0.4)

# npm, into target/tests/node.
NODE_PACKAGES=(kafkajs@2.2.4)

# Go programs as NAME=FOLDER under tests; their go.mod pin franz-go, its kfake and its admin client.
GO_PROGRAMS=(kfaked=kfaked client-go=clients/go)
