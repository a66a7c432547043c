"""config/compose.yaml: that it is valid, that its parts fit, and that they do together what it says.

    TEST_IMAGE=FOLDER TEST_INSTALLED=FOLDER python3 -m unittest

There is no engine here. Its services run as programs of this machine, in network namespaces that have their names: the
real Kafka, hapax out of the image, toxiproxy, Kafka's own producer and Prometheus, with the arguments and the environment
that the file gives them. What stays untried is Grafana, and that the images of others start with these arguments.
"""
import json
import os
import re
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import jsonschema
import layout
from compose import ROOT, Compose
from networks import Networks

INSTALLED = Path(os.environ["TEST_INSTALLED"]).resolve()
JAVA = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{INSTALLED}/kafka-libs/*"]
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
COMPOSE = Compose.read()


class TestModel(unittest.TestCase):
    def test_it_is_valid_by_the_specification(self):
        schema = json.loads((INSTALLED / "compose-spec.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(COMPOSE.document)
        COMPOSE.document["services"]["hapax"]["prots"] = []
        try:
            with self.assertRaises(jsonschema.ValidationError):
                jsonschema.Draft202012Validator(schema).validate(COMPOSE.document)
        finally:
            del COMPOSE.document["services"]["hapax"]["prots"]

    def test_what_it_mounts_is_there(self):
        for name in COMPOSE.services:
            for path in COMPOSE.mounts(name).values():
                self.assertTrue(path.exists(), f"{name}: {path}")

    def test_images_are_pinned(self):
        version = re.search(r'(?m)^version = "(.+)"$', (ROOT / "Cargo.toml").read_text())[1]
        packages = (ROOT / "tests/lib/packages.sh").read_text()
        kafka = re.search(r"(?m)^KAFKA_VERSION=(.+)$", packages)[1]
        toxiproxy = re.search(r"(?m)^COMPOSE_TOXIPROXY=v(.+)$", packages)[1]
        for name, service in COMPOSE.services.items():
            repository, tag = service["image"].rsplit(":", 1)
            self.assertRegex(tag, r"^v?\d+\.\d+\.\d+$", name)
            # What is tried below is what the images have.
            expected = {"apache/kafka": kafka, "ghcr.io/shopify/toxiproxy": toxiproxy, "ghcr.io/hapax-kafka/hapax": version}
            self.assertEqual(tag, expected.get(repository, tag), name)

    def test_ports_are_for_this_machine_alone(self):
        for name, service in COMPOSE.services.items():
            for port in service.get("ports", []):
                self.assertRegex(port, r"^127\.0\.0\.1:(\d+):\1$", name)

    def test_what_is_waited_for_can_happen(self):
        for name in COMPOSE.services:
            for needed, how in COMPOSE.needs(name).items():
                if how["condition"] == "service_healthy":
                    self.assertIn("healthcheck", COMPOSE.services[needed], name)

    def test_every_address_is_that_of_a_service(self):
        found = COMPOSE.addresses()
        # Prometheus and Grafana find hapax and Prometheus by files that they mount.
        self.assertLessEqual({("prometheus", "hapax:9180"), ("grafana", "prometheus:9090")}, found)
        for who, address in found:
            host = address.split(":")[0]
            self.assertIn(host, {*COMPOSE.homes(), "localhost"}, f"{who} connects to {address}")

    def test_clients_of_this_machine_find_every_port(self):
        """hapax names localhost and its own ports, so each has to be published as itself."""
        environment = COMPOSE.services["hapax"]["environment"]
        self.assertEqual(environment["HAPAX_LISTEN_ADVERTISED_HOST"], "localhost")
        first, last = map(int, environment["HAPAX_BROKER_PORTS"].split("-"))
        published = {int(port.split(":")[2]) for port in COMPOSE.services["hapax"]["ports"]}
        self.assertLessEqual({int(environment["HAPAX_LISTEN"].split(":")[1]), *range(first, last + 1)}, published)


class TestTogether(unittest.TestCase):
    def test_retries_are_absorbed_and_seen(self):
        with tempfile.TemporaryDirectory() as folder, Networks(COMPOSE.homes()) as networks:
            with Project(networks, Path(folder)) as project:
                for name in COMPOSE.in_order():
                    if name != "grafana":
                        project.start(name)
                first = project.absorbed()
                until("retries are absorbed", lambda: project.absorbed() >= first + 5, project)
                self.assertEqual(project.metric('hapax_sequence_errors_total{error="out_of_order_sequence_number"}'), 0)
                self.assertIn("records sent", project.log("producer"))
                self.read_from_this_machine(project)
                query = 'hapax_verdicts_total{verdict="duplicate_absorbed",job="hapax"} > 0'
                until("Prometheus knows of them", lambda: project.queried(query), project)
                self.assertEqual(len(project.queried("up == 1")), 1)

    def read_from_this_machine(self, project):
        """Published ports lead into hapax's container: what its localhost is, this machine's is."""
        listed = json.loads(project.output("hapax", "kcat", "-L", "-J", "-b", "localhost:19092"))
        self.assertEqual([broker["name"] for broker in listed["brokers"]], ["localhost:19093"])
        read = project.output(
            "hapax", "kcat", "-C", "-b", "localhost:19092", "-t", "orders", "-o", "beginning", "-c", "50", "-f", "%S\n"
        )
        self.assertEqual(read.split(), ["100"] * 50)


class Project:
    """The services that have been started, as programs of this machine."""

    def __init__(self, networks, folder):
        self.networks, self.folder, self.processes = networks, folder, {}
        self.hapax = folder / "hapax"
        images = dict(layout.Layout(Path(os.environ["TEST_IMAGE"]) / "layout").images())
        self.image = images["amd64"]
        self.hapax.write_bytes(self.image.files()[layout.BINARY][0])
        self.hapax.chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()

    def start(self, name):
        """Starts it as compose does: once what it depends on is as it has to be."""
        for needed, how in COMPOSE.needs(name).items():
            if how["condition"] == "service_completed_successfully":
                assert self.processes[needed].wait(timeout=60) == 0, self.log(needed)
            else:
                until(f"{needed} is healthy", lambda needed=needed: self.is_healthy(needed), self)
        environment = {"PATH": os.environ["PATH"]}
        if name == "hapax":
            environment |= self.image.environment | COMPOSE.services[name]["environment"]
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                [*self.networks.inside(COMPOSE.home(name)), *self.command(name)],
                env=environment | {"PATH": os.environ["PATH"]}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def command(self, name):
        """What the image would start, by the program of this machine that it has."""
        service = COMPOSE.services[name]
        arguments = [self.placed(name, argument) for argument in service.get("command", [])]
        entrypoint = service.get("entrypoint", [""])[0]
        if name == "kafka":
            return [*JAVA, "kafka.Kafka", self.formatted()]
        if name == "hapax":
            return [self.hapax, *self.image.config["Cmd"]]
        if entrypoint.endswith("kafka-producer-perf-test.sh"):
            return [*JAVA, PRODUCER, *arguments]
        if "toxiproxy" in service["image"]:
            return [INSTALLED / ("toxiproxy-cli" if entrypoint else "toxiproxy"), *arguments]
        if name == "prometheus":
            return ["prometheus", *arguments]
        raise AssertionError(f"no program for {name}")

    def placed(self, name, argument):
        """An argument with the paths of this machine for those of the container."""
        for target, path in COMPOSE.mounts(name).items():
            argument = argument.replace(f"={target}", f"={path}")
        for target, content in COMPOSE.contents(name).items():
            file = self.folder / target.strip("/")
            file.write_text(content)
            argument = argument.replace(f"={target}", f"={file}")
        return argument.replace("--storage.tsdb.path=/", f"--storage.tsdb.path={self.folder}/")

    def formatted(self):
        """A server.properties of Kafka's environment, and its storage made ready, as its image does it."""
        properties = COMPOSE.kafka_properties() | {"log.dirs": f"{self.folder}/kafka"}
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tool = [*JAVA, "kafka.tools.StorageTool"]
        identity = subprocess.check_output([*tool, "random-uuid"], text=True, stderr=subprocess.DEVNULL).strip()
        subprocess.run([*tool, "format", "-t", identity, "-c", file], check=True, capture_output=True)
        return file

    def is_healthy(self, name):
        """Its health check, as the file has it, but for the programs of Prometheus' image."""
        kind, program, *arguments = COMPOSE.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        programs = {"hapax": self.hapax, "/toxiproxy-cli": INSTALLED / "toxiproxy-cli", "bash": "bash"}
        command = [*self.networks.inside(COMPOSE.home(name)), programs[program], *arguments]
        assert self.processes[name].poll() is None, f"{name} has ended: {self.log(name)}"
        return subprocess.run(command, capture_output=True).returncode == 0

    def output(self, name, *command):
        done = subprocess.run(
            [*self.networks.inside(name), *command], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def metric(self, series):
        """As Prometheus would read it, from where it is."""
        page = self.output("prometheus", "curl", "--silent", "--show-error", "--fail", "http://hapax:9180/metrics")
        return float(re.search(rf"(?m)^{re.escape(series)} (\S+)$", page)[1])

    def absorbed(self):
        return self.metric('hapax_verdicts_total{verdict="duplicate_absorbed"}')

    def queried(self, query):
        answer = self.output(
            "grafana", "curl", "--silent", "--show-error", "--fail", "--get", "--data-urlencode", f"query={query}",
            "http://prometheus:9090/api/v1/query",
        )  # fmt: skip
        return json.loads(answer)["data"]["result"]

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def logs(self):
        return "".join(f"-- {name}\n{self.log(name)[-2000:]}\n" for name in self.processes)


def until(what, condition, project):
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting until {what}\n{project.logs()}")
        time.sleep(0.2)


if __name__ == "__main__":
    unittest.main()
