"""The suites: the cluster that each wants, how it is run, how its output reads."""
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import machinery

PASS, FAIL, SKIP = "pass", "fail", "skip"
GO_STATUS = {"PASS": PASS, "FAIL": FAIL, "SKIP": SKIP}
# tests/kafka/kafka makes clusters that are quick to see a dead broker. On a busy machine they see live ones dead, and the
# suites have deadlines of their own.
CALM = {
    "broker.session.timeout.ms": 18000,
    "controller.quorum.fetch.timeout.ms": 10000,
    "controller.quorum.election.timeout.ms": 2000,
}
# Some tests set access rules.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


class Suite:
    """A suite has a name, a title with its version, a cluster it wants, and run(seat, only) -> {test: status}."""

    node_ids = [1, 2, 3]
    kafka_properties = {}

    def tests_matching(self, pattern):
        return Pattern(pattern)


class Pattern(str):
    """A regular expression of test names, where a set of names would do."""


def chosen(test, only):
    return only is None or (re.search(only, test) is not None if isinstance(only, Pattern) else test in only)


def go_pattern(only):
    """What `-test.run` takes for these tests; those of a test go with it."""
    return only if isinstance(only, Pattern) else f"^({'|'.join(sorted({test.split('/')[0] for test in only}))})$"


def go_results(text):
    """The tests of `go test -test.v=test2json`; one without an end has failed."""
    begun = dict.fromkeys(re.findall(r"^\x16?=== RUN +(\S+)", text, re.MULTILINE), FAIL)
    ends = re.findall(r"^\x16? *--- (PASS|FAIL|SKIP): (\S+) \(", text, re.MULTILINE)
    return begun | {test: GO_STATUS[word] for word, test in ends}


def go_module(folder, module):
    """Version and folder of a module as one of the tests' client programs pins it."""
    command = ["go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module]
    listed = subprocess.run(command, cwd=machinery.ROOT / "tests/clients/go" / folder, check=True, capture_output=True, text=True)
    return listed.stdout.split()


class FranzGo(Suite):
    name = "franz-go"
    # As its own continuous integration has it: the share group tests release records more often than five times.
    kafka_properties = {"group.share.delivery.count.limit": 10, **CALM}
    module = "github.com/twmb/franz-go"

    def title(self):
        return f"franz-go {go_module('franz', self.module)[0]}, package kgo"

    def run(self, seat, only):
        # One test reads the package's sources.
        folder = go_module("franz", self.module)[1] + "/pkg/kgo"
        environment = {
            **os.environ,
            "KGO_SEEDS": seat.bootstrap,
            "KGO_TEST_RF": str(seat.kafka.nodes),
            "KGO_TEST_RECORDS": "20000",
            "KGO_TEST_MAX_TOPIC_PARTS": "7",
            "KGO_LOG_LEVEL": "none",
            "KGO_TEST_SCRAM_SEEDS": seat.sasl_bootstrap,
            "KGO_TEST_SCRAM": "alice:alice-secret",
        }
        command = [machinery.WORK / "kgo.test", "-test.v=test2json", "-test.timeout=880s"]
        if only is not None:
            command.append(f"-test.run={go_pattern(only)}")
        machinery.run_bounded(command, 900, seat.folder / "output.txt", cwd=folder, env=environment)
        return go_results((seat.folder / "output.txt").read_text(errors="replace"))


class Sarama(Suite):
    name = "sarama"
    kafka_properties = {"auto.create.topics.enable": "false"}
    module = "github.com/IBM/sarama"
    subset = "TestFunc(Producing|Txn|Idempotent|InitProducer|MultiPartition)|TestInterceptors|TestAsyncProducerRemote"

    def title(self):
        return f"sarama {go_module('sarama', self.module)[0]}, functional tests of the producer"

    def run(self, seat, only):
        # They read testdata beside them.
        folder = go_module("sarama", self.module)[1]
        shims = seat.folder / "bin"
        shims.mkdir()
        (shims / "docker").symlink_to(machinery.HERE / "docker")
        environment = {
            **os.environ,
            "PATH": f"{shims}:{os.environ['PATH']}",
            "CLUSTER_DIR": str(seat.kafka.folder),
            "KAFKA_SCRIPT": str(machinery.ROOT / "tests/kafka/kafka"),
            "TOXIPROXY_ADDR": f"http://{machinery.TOXIPROXY}",
            "KAFKA_VERSION": seat.kafka.version,
        }
        pattern = self.subset if only is None else go_pattern(only)
        command = [machinery.WORK / "sarama.test", "-test.v=test2json", "-test.timeout=880s", f"-test.run={pattern}"]
        with seat.toxiproxy():
            machinery.run_bounded(command, 900, seat.folder / "output.txt", cwd=folder, env=environment)
        return go_results((seat.folder / "output.txt").read_text(errors="replace"))


class KafkaPython(Suite):
    name = "kafka-python"
    # The cluster that its own fixtures would start, which some tests rely on.
    node_ids = [0]
    kafka_properties = {"num.partitions": 4, "group.min.session.timeout.ms": 1000, **AUTHORIZER}

    def sources(self):
        return next(machinery.WORK.glob("kafka_python-*/"))

    def title(self):
        return f"{self.sources().name.replace('_', '-').replace('python-', 'python ')}, integration tests of producer, consumer and admin"

    def run(self, seat, only):
        report = seat.folder / "report.xml"
        command = [machinery.WORK / "venv/bin/python", "-m", "pytest", f"--junitxml={report}", "-p", "no:cacheprovider"]
        every = [f"test/integration/test_{theme}_integration.py" for theme in ("producer", "consumer", "admin")]
        command += [f"test/integration/{name.replace('::', '.py::', 1)}" for name in only] if isinstance(only, set) else every
        # The cluster is there already: the version's folder is only looked for.
        environment = {
            **os.environ,
            "KAFKA_ROOT": str(seat.folder),
            "KAFKA_URI": f"kafka://{seat.bootstrap.split(',')[0]}",
            "KAFKA_VERSION": seat.kafka.version,
        }
        machinery.run_bounded(command, 600, seat.folder / "output.txt", cwd=self.sources(), env=environment)
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else []
        results = {f"{case.get('classname').split('.')[-1]}::{case.get('name')}": junit_status(case) for case in cases}
        return {test: status for test, status in results.items() if chosen(test, only)}


def junit_status(case):
    kinds = {child.tag for child in case}
    return FAIL if kinds & {"failure", "error"} else SKIP if "skipped" in kinds else PASS


class Librdkafka(Suite):
    name = "librdkafka"
    kafka_properties = {"num.partitions": 4, **CALM}
    folder = machinery.WORK / "librdkafka/tests"
    # Each number runs in a process of its own; all producers are idempotent (-P), no local tests (-L), quick ones (-Q).
    flags = ["-p1", "-L", "-P", "-Q"]
    # What produces, and what transactions do to consumers. Others: --only with their names.
    subset = "^(%s)" % "|".join(
        "0001 0002 0003 0005 0008 0011_ 0012 0017 0048 0055 0068 0075 0076 0083 0085 0086 0088 0090 0092 0094 0098 0103 0110 0114 "
        "0123 0125 0129".split()
    )

    def title(self):
        hexadecimal = re.search(r"RD_KAFKA_VERSION 0x(\w{6})", (self.folder.parent / "src/rdkafka.h").read_text())[1]
        version = ".".join(str(int(hexadecimal[at : at + 2], 16)) for at in (0, 2, 4))
        return f"librdkafka {version}, its tests of producing with a broker, every producer idempotent"

    def names(self):
        """The tests that talk with a broker."""
        table = re.findall(r"^\s*_TEST\((\w+),\s*([^,)]+)", (self.folder / "test.c").read_text(), re.MULTILINE)
        return [name for name, flags in table if not re.search("TEST_F_(LOCAL|MANUAL)", flags) and not name.endswith("_mock")]

    def run(self, seat, only):
        configuration = seat.folder / "test.conf"
        configuration.write_text(f"metadata.broker.list={seat.bootstrap}\ntest.topic.random=true\ntest.timeout.multiplier=3\n")
        release = seat.folder / "kafka"
        (release / "bin").mkdir(parents=True)
        for command in ("run-class", "topics", "acls"):
            (release / f"bin/kafka-{command}.sh").symlink_to(machinery.HERE / "kafka-command")
        results = {}
        names = [name for name in self.names() if chosen(name, Pattern(self.subset) if only is None else only)]
        for number in sorted({name[:4] for name in names}):
            report = seat.folder / f"{number}.json"
            environment = {
                **os.environ,
                # Debian's librdkafka, which kcat brings, is another one.
                "LD_LIBRARY_PATH": f"{self.folder.parent}/src:{self.folder.parent}/src-cpp",
                "RDKAFKA_TEST_CONF": str(configuration),
                "KAFKA_PATH": str(release),
                "KAFKA_SCRIPT": str(machinery.ROOT / "tests/kafka/kafka"),
                "CLUSTER_DIR": str(seat.kafka.folder),
                "BROKERS": seat.bootstrap,
                "TESTS": number,
                "TEST_REPORT": str(report),
                "TEST_KAFKA_VERSION": seat.kafka.version,
            }
            command = [self.folder / "test-runner", *self.flags]
            machinery.run_bounded(command, 240, seat.folder / f"{number}.txt", cwd=self.folder, env=environment)
            told = report_of(report)
            results |= {name: told.get(name, FAIL) for name in names if name.startswith(number)}
        return results


def report_of(path):
    """What test-runner's own report says of each test; it has none when it was ended."""
    if not path.exists():
        return {}
    # Its JSON is not quite JSON.
    found = re.findall(r'"(\w+)": \{"name": "\w+", "state": "(\w+)"', path.read_text())
    return {name: {"PASSED": PASS, "SKIPPED": SKIP}.get(state, FAIL) for name, state in found}


SUITES = {suite.name: suite for suite in (FranzGo(), Librdkafka(), KafkaPython(), Sarama())}
