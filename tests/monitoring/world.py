"""What the live test is made of: a Kafka, hapax in many roles, and a Prometheus that scrapes each."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "config/prometheus"
INSTALLED = ROOT / "target/tests"
KAFKA = ROOT / "tests/kafka/kafka"
# Durations of rules are divided by this for the live test: an hour becomes a minute.
FASTER = 60
SCRAPE_EVERY = 0.5
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def hapax_binary():
    return os.environ.get("TEST_HAPAX") or str(INSTALLED / "cargo/bin/hapax")


def free_port(taken=set()):  # noqa: B006, one set for all calls: a port is given once
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in taken and port < 60000:
            taken.add(port)
            return port


def free_run(count):
    """The first of so many free ports in a row."""
    while True:
        first = free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as probes:
            for port in range(first, first + count):
                probe = probes.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port))
            return first


def accepts(port):
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def await_until(what, seconds, check):
    """Asks again until the answer is true, or fails."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if answer := check():
                return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what}")
        time.sleep(0.1)


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def shortened(duration):
    seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smhd])", duration))
    return f"{max(1, round(seconds / FASTER * 1000))}ms"


def faster(rules):
    """The same rules on a clock that is so much faster: windows and holds are shorter, thresholds stay."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\w+)\]", lambda found: f"[{shortened(found[1])}]", rule["expr"])
            if "for" in rule:
                rule["for"] = shortened(rule["for"])
    return rules


class Process:
    """A process that ends with the test."""

    def __init__(self, name, folder, arguments, environment=None):
        self.name, self.log = name, folder / f"{name}.log"
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                          env={**os.environ, **(environment or {})})

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=30):
        return self.popen.wait(seconds)

    def end(self):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
            self.popen.wait()

    def said(self):
        return self.log.read_text(errors="replace")


class Hapax(Process):
    """A hapax that serves; target is where Prometheus finds it."""

    def __init__(self, name, folder, upstream, *flags, command="run", ports=2, wait=True):
        first = free_run(ports + 1)
        self.bootstrap, self.target = f"127.0.0.1:{first}", f"127.0.0.1:{free_port()}"
        arguments = [hapax_binary(), command, "--listen", self.bootstrap, "--admin-listen", self.target]
        if command == "run":
            arguments += ["--upstream", upstream, "--broker-ports", f"{first + 1}-{first + ports}"]
        super().__init__(name, folder, [*arguments, *flags], {"HAPAX_WORKERS": "1"} if command == "run" else None)
        if wait:
            await_until(f"{name} to start: {self.log}", 30, lambda: get(f"http://{self.target}/startupz"))

    def metrics(self):
        return get(f"http://{self.target}/metrics")

    def value(self, series):
        found = [line for line in self.metrics().splitlines() if line.startswith(series + " ")]
        return float(found[0].rsplit(" ", 1)[1]) if found else None


class Kafka:
    """One node of a real Kafka."""

    def __init__(self, folder):
        self.folder, port = folder / "kafka", free_run(6)
        version = re.search(r"^KAFKA_VERSION=(\S+)", (ROOT / "tests/lib/packages.sh").read_text(), re.M)[1]
        self.environment = {**os.environ, "CLUSTER_DIR": str(self.folder), "KAFKA_VERSION": version, "NODE_PORTS": str(port),
                            "NODE_IDS": "1", "OWNER_PID": str(os.getpid()), "HEAP": "384m"}
        subprocess.run([KAFKA, "up"], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        self.bootstrap, self.with_login = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"

    def make(self, topics):
        """Makes topics, and waits until they and transactions can be used."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "warm-up"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"warm-up")
        producer.commit_transaction(60)

    def end(self):
        subprocess.run([KAFKA, "down"], env=self.environment, check=False, stdout=subprocess.DEVNULL)


class Prometheus(Process):
    """A real Prometheus with the project's rules, on a faster clock; jobs in place of its own are taken as they are."""

    def __init__(self, folder, jobs=None):
        self.folder, self.address = folder, f"127.0.0.1:{free_port()}"
        self.targets = folder / "targets.json"
        self.show([])
        for name in ("rules.yaml", "alerts.yaml"):
            (folder / name).write_text(yaml.safe_dump(faster(yaml.safe_load((PROMETHEUS / name).read_text()))))
        every = f"{round(SCRAPE_EVERY * 1000)}ms"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(folder / "rules.yaml"), str(folder / "alerts.yaml")],
            "scrape_configs": jobs or [{
                "job_name": "hapax", "file_sd_configs": [{"files": [str(self.targets)], "refresh_interval": "1s"}],
                "sample_limit": 2000, "label_limit": 12,
            }],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        super().__init__("prometheus", folder, [
            "prometheus", f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}", "--log.level=warn"])
        await_until(f"Prometheus to start: {self.log}", 60, lambda: get(f"http://{self.address}/-/ready"))

    def show(self, pods):
        """Lists what is to be scraped. Each is a job of its own, as if each were another team's."""
        groups = [{"targets": [pod.target], "labels": {"job": pod.name, "pod": pod.name, "namespace": "live", "cluster": "test", "env": "test"}}
                  for pod in pods]
        fresh = self.targets.with_suffix(".new")
        fresh.write_text(json.dumps(groups))
        fresh.rename(self.targets)

    def api(self, path, **parameters):
        return json.loads(get(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))["data"]

    def query(self, expression, **when):
        return self.api("query", query=expression, **when)["result"]

    def range(self, expression, start, end, step):
        return self.api("query_range", query=expression, start=start, end=end, step=step)["result"]

    def firing(self):
        """Names of the alerts that fire, by pod or job."""
        found = {}
        for alert in self.api("alerts")["alerts"]:
            if alert["state"] == "firing":
                labels = alert["labels"]
                found.setdefault(labels.get("pod") or labels["job"], set()).add(labels["alertname"])
        return found


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="hapax-monitoring-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
