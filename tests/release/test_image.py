"""The image: what is in it, and what it does under an OCI runtime as Kubernetes starts it.

    TEST_IMAGE=FOLDER python3 -m unittest      with FOLDER as build.py left it
"""
import functools
import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import build
import elf
import layout
import podman

FOLDER = Path(os.environ["TEST_IMAGE"]).resolve()
ASSEMBLED = layout.Layout(FOLDER / "layout")
IMAGES = dict(ASSEMBLED.images())
RECORDS = 200


@functools.cache
def pulled():
    return podman.pull()


class TestImage(unittest.TestCase):
    """What is in it."""

    def test_every_platform_is_as_it_should_be(self):
        self.assertEqual(layout.complaints(ASSEMBLED, sorted(IMAGES)), [])
        self.assertIn("amd64", IMAGES)

    def test_labels_say_what_the_binary_says(self):
        said = json.loads(podman.run(pulled(), "version", "--json").stdout)
        for architecture, image in IMAGES.items():
            labels = image.labels
            self.assertEqual((labels["version"], labels["revision"]), (said["version"], said["revision"]), architecture)
            self.assertEqual(labels["licenses"], "Apache-2.0")
            self.assertTrue(labels["title"] and labels["description"] and labels["source"])
        self.assertEqual((said["version"], said["revision"]), (build.version(), build.revision()))

    def test_nothing_but_the_binary_its_licence_and_authorities(self):
        for architecture, image in IMAGES.items():
            self.assertEqual(
                set(image.files()), {layout.BINARY, layout.AUTHORITIES, "usr/share/doc/hapax/LICENSE"}, architecture
            )

    def test_probes_and_metrics_are_not_bound_to_loopback(self):
        for image in IMAGES.values():
            self.assertEqual(image.environment["HAPAX_ADMIN_LISTEN"], "[::]:9180")

    def test_versions_in_the_dockerfile_are_those_of_the_project(self):
        dockerfile = (build.ROOT / "Dockerfile").read_text()
        channel = re.search(r'channel = "(.+)"', (build.ROOT / "rust-toolchain.toml").read_text())[1]
        self.assertIn(f"FROM --platform=$BUILDPLATFORM rust:{channel}-", dockerfile)
        self.assertIn(f"RUSTUP_TOOLCHAIN={channel}\n", dockerfile)
        self.assertIn(f"\nARG VERSION={build.version()}\n", dockerfile)

    def test_its_commands_are_shell(self):
        """Nobody runs the first stage here; its shell is at least read."""
        text = build.Dockerfile().first.replace("\\\n", " ")
        commands = [re.sub(r"--mount=\S+", "", line) for line in re.findall(r"(?m)^RUN (.+)$", text)]
        self.assertEqual(len(commands), 2)
        for command in commands:
            subprocess.run(["sh", "-n", "-c", command], check=True)

    def test_an_engine_sees_what_the_build_copies(self):
        """What .dockerignore lets through is what the Dockerfile copies."""
        let_through = re.findall(r"(?m)^!(.+)$", (build.ROOT / ".dockerignore").read_text())
        self.assertEqual(sorted(let_through), sorted(build.Dockerfile().copies))


class TestChecker(unittest.TestCase):
    """The check of a layout can fail."""

    def changed(self, change):
        """What is said of the layout once `change` has been made to a copy of its index."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "layout"
            shutil.copytree(ASSEMBLED.folder, copy)
            changed = layout.Layout(copy)
            top = json.loads((copy / "index.json").read_text())
            index = changed.json(top["manifests"][0])
            change(index["manifests"])
            content = json.dumps(index).encode()
            top["manifests"] = [build.store(changed, content, layout.INDEX)]
            (copy / "index.json").write_text(json.dumps(top))
            return layout.complaints(changed, sorted(IMAGES))

    def test_a_binary_of_one_platform_under_the_name_of_the_other_is_found(self):
        def swap(entries):
            platform = entries[0]["platform"]
            platform["architecture"] = "arm64" if platform["architecture"] == "amd64" else "amd64"

        self.assertIn("its binary is for", "\n".join(self.changed(swap)))

    def test_a_missing_bill_is_found(self):
        def take_away(entries):
            entries[:] = [entry for entry in entries if entry["platform"]["os"] == "linux"]

        self.assertIn("amd64: no bill of materials is attached", self.changed(take_away))

    def test_an_unknown_machine_and_a_library_are_found(self):
        binary = IMAGES["amd64"].files()[layout.BINARY][0]
        other = binary[:18] + struct.pack("<H", 8) + binary[20:]
        self.assertEqual(elf.read(other).machine, "e_machine 8")
        self.assertFalse(elf.read(Path("/bin/true").read_bytes()).static)
        self.assertRaises(elf.NotElf, elf.read, b"#!/bin/sh\n" * 20)


class TestRun(unittest.TestCase):
    """As a restricted pod starts it: no root, nothing writable, no capability, no new privileges."""

    def test_the_demonstration_ends_well_without_any_network(self):
        done = podman.run(pulled(), "dev", "--once", network="none")
        self.assertIn("with hapax         100        10         10       100                       0", done.stdout)

    def test_who_it_is(self):
        with podman.Container(pulled(), "dev", "--no-demo", network="none") as container:
            self.assertEqual(container.user(), (65532, 65532))
            status = container.status()
            self.assertEqual({status[name] for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
            self.assertEqual(status["NoNewPrivs"], "1")
            self.assertTrue(container.root_is_read_only())

    def test_clients_are_served_and_drained(self):
        with Kafka() as kafka:
            first = free_ports(4)
            flags = [
                "run", "--upstream", f"127.0.0.1:{kafka.port}", "--listen", f"127.0.0.1:{first}",
                "--broker-ports", f"{first + 1}-{first + 2}", "--admin-listen", f"[::]:{first + 3}",
            ]  # fmt: skip
            here, admin = f"127.0.0.1:{first}", f"127.0.0.1:{first + 3}"
            check = podman.run(pulled(), "check", *flags[1:-2], "--connect")
            self.assertIn("127.0.0.1", check.stdout)
            with podman.Container(pulled(), *flags, network="host") as container:
                container.execute("hapax", "wait", "--ready", "--max", "60s", "--admin", admin)
                lines = "".join(f"{n}\n" for n in range(RECORDS))
                kcat("-P", "-b", here, "-t", "image", "-X", "enable.idempotence=true", stdin=lines)
                read = kcat("-C", "-b", here, "-t", "image", "-o", "beginning", "-c", str(RECORDS), "-e", "-q")
                self.assertEqual(sorted(read.split(), key=int), lines.split())
                metrics = page("127.0.0.1", first + 3, "/metrics")
                [written] = re.findall(r'(?m)^hapax_produce_records_total\{topic="image",verdict="forwarded"\} (\d+)', metrics)
                self.assertEqual(int(written), RECORDS)
                [told] = re.findall(r"(?m)^hapax_build_info\{.+$", metrics)
                self.assertIn(f'revision="{build.revision()}"', told)
                self.drained(container, here, first + 3)

    def drained(self, container, here, admin):
        """SIGTERM waits for the client that is there, and ends with 0 once it has gone."""
        client = subprocess.Popen(
            ["kcat", "-C", "-b", here, "-t", "image", "-o", "beginning", "-u", "-q"], stdout=subprocess.PIPE, text=True
        )
        self.assertEqual(client.stdout.readline().strip().isdigit(), True)
        container.signal("TERM")
        until("hapax says that it drains", lambda: "\nhapax_draining 1\n" in page("127.0.0.1", admin, "/metrics"))
        self.assertTrue(container.is_running())
        kcat("-P", "-b", here, "-t", "image", "-X", "enable.idempotence=true", stdin="late\n")
        client.kill()
        client.communicate()
        self.assertEqual(container.ended(), 0)

    def test_it_starts_where_the_kernel_knows_no_ipv6(self):
        """[::] is what the image binds; a seccomp profile stands in for such a kernel."""
        with podman.Container(pulled(), "run", "--upstream", "127.0.0.1:9", network="none", without_ipv6=True) as container:
            container.execute("hapax", "wait", "--max", "60s")
            self.assertIn("0.0.0.0:9180", container.log())

    def test_authorities_are_found(self):
        """Without any, TLS to brokers without a CA of their own is a mistake in the configuration (78)."""
        podman.run(pulled(), "check", "--upstream", "127.0.0.1:1", "--upstream-tls-enabled=true", expect=0)


@unittest.skipUnless("arm64" in IMAGES, "the default run builds amd64 alone; `tests/run image` builds both")
class TestArm(unittest.TestCase):
    """The other platform, its processor emulated."""

    def arm(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            binary = Path(folder) / "hapax"
            binary.write_bytes(IMAGES["arm64"].files()[layout.BINARY][0])
            binary.chmod(0o755)
            return subprocess.run(
                ["qemu-aarch64-static", binary, *arguments], check=True, capture_output=True, text=True, timeout=300
            ).stdout

    def test_it_says_its_version(self):
        said = json.loads(self.arm("version", "--json"))
        self.assertEqual((said["version"], said["revision"]), (build.version(), build.revision()))
        self.assertEqual(said["target"], "aarch64-linux-musl")

    def test_the_demonstration_ends_well(self):
        self.assertRegex(self.arm("dev", "--once"), r"with hapax +100 +10 +10 +100 +0\n")


class Kafka:
    """A real Kafka of one node."""

    script = build.ROOT / "tests/kafka/kafka"

    def __enter__(self):
        versions = (build.ROOT / "tests/lib/packages.sh").read_text()
        self.port = free_ports(6)
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_CLUSTERS"))
        self.environment = os.environ | {
            "CLUSTER_DIR": f"{self.folder}/cluster",
            "KAFKA_VERSION": re.search(r"(?m)^KAFKA_VERSION=(.+)$", versions)[1],
            "NODE_PORTS": str(self.port),
            "NODE_IDS": "1",
            "OWNER_PID": str(os.getpid()),
        }
        subprocess.run([self.script, "up"], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([self.script, "down"], env=self.environment, check=True)
        shutil.rmtree(self.folder)


def kcat(*arguments, stdin=""):
    done = subprocess.run(["kcat", *arguments], input=stdin, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"kcat {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def page(host, port, path):
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 200, f"{path}: {answer.status} {body}"
    return body


def free_ports(count):
    """The first of some adjacent ports that nobody uses, below those that systems lend."""
    for first in range(20000 + os.getpid() % 8000, 32000 - count, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as there:
                    there.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def until(what, condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"gave up waiting until {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
