"""What the suites run on: a Kafka cluster, hapax before it, a toxiproxy before either, and bounded processes."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
WORK = ROOT / "target/tests/suites"
HAPAX = ROOT / "target/tests/cargo/bin/hapax"

# Ports need not be looked for: this program is alone in its network.
KAFKA_PORTS = [9100, 9110, 9120]
# Where sarama's tests look for its five brokers; the last two stand for nodes 1 and 2 once more.
SARAMA_PORTS = [29091, 29092, 29093, 29094, 29095]
TOXIPROXY = "127.0.0.1:8474"


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def await_port(host, port, process, seconds=30):
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"nothing serves {host}:{port}") from None
            time.sleep(0.05)


def run_bounded(command, seconds, log, **options):
    """Runs a program with its output in `log`; gives its exit code, or None when it had to be ended."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


class Program:
    """A program that serves until the block ends."""

    def __init__(self, command, log, host, port):
        self.command, self.log, self.host, self.port = [str(word) for word in command], log, host, port

    def __enter__(self):
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        await_port(self.host, self.port, self.process)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Kafka:
    """A cluster by tests/kafka/kafka, with a third listener that sends clients on to sarama's ports."""

    def __init__(self, version, node_ids, properties, logs):
        self.version, self.node_ids, self.nodes = version, node_ids, len(node_ids)
        self.folder, self.logs = logs / "cluster", logs
        self.environment = {
            **os.environ,
            "CLUSTER_DIR": str(self.folder),
            "KAFKA_VERSION": version,
            "NODE_PORTS": " ".join(str(port) for port in KAFKA_PORTS[: self.nodes]),
            "NODE_IDS": " ".join(str(node) for node in node_ids),
            "FRONT_ADVERTISED": " ".join(f"127.0.0.1:{port}" for port in SARAMA_PORTS[: self.nodes]),
            "EXTRA": "\n".join(f"{key}={value}" for key, value in properties.items()),
        }
        self.plain = self.listener(0)
        self.sasl = self.listener(1)

    def listener(self, which):
        return ",".join(f"127.0.0.1:{port + which}" for port in KAFKA_PORTS[: self.nodes])

    def command(self, *words):
        subprocess.run([ROOT / "tests/kafka/kafka", *words], check=True, env=self.environment, stdin=subprocess.DEVNULL)

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.command("up")
        return self

    def __exit__(self, *_):
        for node in range(1, self.nodes + 1):
            shutil.copy(self.folder / f"n{node}/server.log", self.logs / f"kafka-{node}.log")
        self.command("down")


class Proxies:
    """hapax three times: before the plain listener, before the SASL listener, and at sarama's ports on another address."""

    def __init__(self, kafka, hapax, mode, level, logs):
        sarama = range(SARAMA_PORTS[0], SARAMA_PORTS[kafka.nodes - 1] + 1)
        slots = ",".join(f"{node}={port}" for node, port in zip(kafka.node_ids, sarama))
        self.plain, self.sasl = "127.0.0.1:19092", "127.0.0.1:19292"
        self.logs = logs
        self.admin = {"plain": 9180, "sasl": 9181, "sarama": 9182}
        common = [hapax, "run", f"--mode={mode}", f"--log-level={level}", "--log-format=json"]
        places = {
            "plain": ("127.0.0.1", 19092, [f"--upstream={kafka.plain}", "--broker-ports=19093-19095"]),
            "sasl": ("127.0.0.1", 19292, [f"--upstream={kafka.sasl}", "--broker-ports=19293-19295"]),
            # Clients are sent to toxiproxy, which stands at the same ports of 127.0.0.1.
            "sarama": (
                "127.0.0.2",
                29090,
                [
                    f"--upstream={kafka.plain}",
                    f"--broker-ports={sarama[0]}-{sarama[-1]}",
                    f"--listen-node-slots={slots}",
                    "--listen-advertised-host=127.0.0.1",
                ],
            ),
        }
        self.programs = [
            Program(
                [*common, *flags, f"--listen={host}:{port}", f"--admin-listen=127.0.0.1:{self.admin[name]}"],
                logs / f"hapax-{name}.log",
                host,
                port,
            )
            for name, (host, port, flags) in places.items()
        ]

    def __enter__(self):
        for program in self.programs:
            program.__enter__()
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.__exit__()

    def metrics(self):
        """The sums over all of what they counted: {(metric, label): value}, values above 0."""
        sums = {}
        for name, port in self.admin.items():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            (self.logs / f"metrics-{name}.txt").write_text(text)
            for metric, label, value in re.findall(r'^(hapax_\w+)\{\w+="([^"]*)"\} (\S+)$', text, re.MULTILINE):
                sums[metric, label] = sums.get((metric, label), 0) + float(value)
        return {key: int(value) for key, value in sums.items() if value}

    def complaints(self):
        """How often hapax logged each message at level warn or error."""
        counts = {}
        for log in self.logs.glob("hapax-*.log"):
            for line in log.read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"level": "ERROR", "message": line}
                if entry.get("level") in ("WARN", "ERROR"):
                    message = entry.get("message") or entry.get("fields", {}).get("message", "")
                    counts[message] = counts.get(message, 0) + 1
        return counts


@dataclasses.dataclass
class Seat:
    """Where a suite meets the cluster: direct, or through hapax."""

    route: str
    kafka: Kafka
    proxies: Proxies
    folder: pathlib.Path

    @property
    def bootstrap(self):
        return self.proxies.plain if self.route == "hapax" else self.kafka.plain

    @property
    def sasl_bootstrap(self):
        return self.proxies.sasl if self.route == "hapax" else self.kafka.sasl

    def toxiproxy(self):
        return Toxiproxy(self)


class Toxiproxy(Program):
    """Stands at sarama's ports, before hapax or before the cluster's third listener."""

    def __init__(self, seat):
        host, port = TOXIPROXY.split(":")
        super().__init__([WORK / "toxiproxy", "-host", host, "-port", port], seat.folder / "toxiproxy.log", host, int(port))
        self.seat = seat

    def __enter__(self):
        super().__enter__()
        nodes = self.seat.kafka.nodes
        for index, port in enumerate(SARAMA_PORTS):
            node = index % nodes
            upstream = f"127.0.0.2:{SARAMA_PORTS[node]}" if self.seat.route == "hapax" else f"127.0.0.1:{KAFKA_PORTS[node] + 2}"
            proxy = {"name": f"kafka{index + 1}", "listen": f"127.0.0.1:{port}", "upstream": upstream, "enabled": True}
            request = urllib.request.Request(f"http://{TOXIPROXY}/proxies", json.dumps(proxy).encode(), method="POST")
            urllib.request.urlopen(request, timeout=10).close()
        return self
