"""A gateway as the chart renders it, as processes: replicas that agree, `helm test`, and the end of a Pod.

Replicas are 127.0.0.1 and 127.0.0.2, each with the same ports, as Pods have them. There is no Service between: clients are
told 127.0.0.1.
"""

import json
import os
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.request
from pathlib import Path

import node
import rendering
from brokers import Cluster
from rendering import Scenario
from test_node import HAPAX

CHART = "charts/hapax"
REPLICAS = ("127.0.0.1", "127.0.0.2")


class TestGateway(rendering.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hapax-gateway-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.cluster = Cluster(node.free_ports(4), partitions=6)
        self.addCleanup(self.cluster.close)
        self.ports = node.free_ports(8)

    def render(self, **gateway):
        bootstrap, first, *_, admin = self.ports
        values = {
            "upstream": {"bootstrap": [self.cluster.bootstrap]},
            "admin": {"listen": f"0.0.0.0:{admin}"},
            "config": {"log": {"level": "debug"}},
            "drain": {"timeout": "20s"},
            "gateway": {
                "enabled": True, "brokers": 3, "advertisedHost": "127.0.0.1", "preStopSleepSeconds": 0,
                "service": {"perBroker": False}, "ports": {"bootstrap": bootstrap, "brokers": first}, **gateway,
            },
        }  # fmt: skip
        file = self.folder / "values.yaml"
        file.write_text(json.dumps(values))
        return self.workshop.render(Scenario(CHART, file))

    def environment(self, documents, container, address):
        """Its variables, with the mounted file where this machine has it, listening where this replica is."""
        maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
        for name, text in maps["shop-hapax-gateway"].items():
            (self.folder / name).write_text(text)
        given = {item["name"]: item["value"] for item in container.get("env", [])}
        for key in ("HAPAX_LISTEN", "HAPAX_ADMIN_LISTEN"):
            if key in given:
                given[key] = f"{address}:{given[key].rpartition(':')[2]}"
        if "HAPAX_CONFIG" in given:
            given["HAPAX_CONFIG"] = str(self.folder / Path(given["HAPAX_CONFIG"]).name)
        return {"PATH": os.environ["PATH"], **given}

    def run_replica(self, documents, address):
        [deployment] = [d for d in documents if d["kind"] == "Deployment"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        log = (self.folder / f"{address}.log").open("wb")
        self.addCleanup(log.close)
        environment = self.environment(documents, container, address)
        process = subprocess.Popen([HAPAX, *container["args"]], env=environment, stdout=log, stderr=log)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait()))
        wait = [HAPAX, "wait", "--ready", f"--admin={address}:{self.ports[-1]}"]
        self.assertEqual(subprocess.run(wait, capture_output=True).returncode, 0, Path(log.name).read_text())
        return process

    def helm_test(self, documents):
        """Exit code and words of each container of the test, by name; Services are 127.0.0.1 here."""
        [pod] = [d for d in documents if d["kind"] == "Pod" and d["metadata"]["annotations"].get("helm.sh/hook") == "test"]
        told = {}
        for container in [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]:
            services = ("shop-hapax-gateway-metrics:", "shop-hapax-gateway:")
            arguments = list(container["args"])
            for service in services:
                arguments = [argument.replace(service, "127.0.0.1:") for argument in arguments]
            environment = self.environment(documents, container, "127.0.0.1")
            done = subprocess.run([HAPAX, *arguments], env=environment, capture_output=True, text=True)
            told[container["name"]] = (done.returncode, done.stdout + done.stderr)
        return told

    def brokers(self, address):
        with urllib.request.urlopen(f"http://{address}:{self.ports[-1]}/api/v1/brokers") as answer:
            return {broker["node"]: broker["port"] for broker in json.load(answer)["brokers"]}

    def learn(self, address):
        """Lets a client ask a replica for the brokers."""
        environment = {"PATH": os.environ["PATH"]}
        free = node.free_ports(6)
        own = [f"--listen=127.0.0.1:{free[0]}", f"--broker-ports={free[1]}-{free[4]}", f"--admin-listen=127.0.0.1:{free[5]}"]
        subprocess.run([HAPAX, "check", "--connect", f"--upstream={address}:{self.ports[0]}", *own], env=environment, capture_output=True)

    def test_helm_test_passes_where_clients_get_through(self):
        documents = self.render()
        self.run_replica(documents, "127.0.0.1")
        told = self.helm_test(documents)
        self.assertEqual({name: code for name, (code, _) in told.items()}, {"wait": 0, "brokers": 0, "clients": 0}, told)
        first = self.ports[1]
        for node in range(3):
            self.assertIn(f"127.0.0.1:{first + node}", told["clients"][1], "each broker was reached by its port of the gateway")

    def test_helm_test_fails_where_a_broker_has_no_port(self):
        documents = self.render(brokers=2)
        self.run_replica(documents, "127.0.0.1")
        told = self.helm_test(documents)
        self.assertNotEqual(told["brokers"][0], 0)
        self.assertIn("finds no port", told["brokers"][1])

    def test_helm_test_fails_where_the_brokers_are_gone(self):
        documents = self.render()
        self.run_replica(documents, "127.0.0.1")
        self.cluster.close()
        told = self.helm_test(documents)
        self.assertEqual((told["brokers"][0], told["clients"][0]), (69, 69), told)

    def test_replicas_give_each_broker_the_same_port(self):
        first = self.ports[1]
        for brokers, expected in ((3, {0: first, 1: first + 1, 2: first + 2}), ([2, 0, 1], {2: first, 0: first + 1, 1: first + 2}), (2, {0: first, 1: first + 1, 2: None})):
            with self.subTest(brokers=brokers):
                documents = self.render(brokers=brokers)
                processes = [self.run_replica(documents, address) for address in REPLICAS]
                for address in REPLICAS:
                    self.learn(address)
                self.assertEqual([self.brokers(address) for address in REPLICAS], [expected, expected])
                for process in processes:
                    process.kill()
                    process.wait()

    def test_a_pod_that_ends_takes_no_client_and_closes_those_that_are_idle(self):
        documents = self.render()
        process = self.run_replica(documents, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", self.ports[0])) as idle:
            process.send_signal(signal.SIGTERM)
            [deployment] = [d for d in documents if d["kind"] == "Deployment"]
            grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.assertEqual(process.wait(grace), 0)
            self.assertEqual(idle.recv(1), b"", "closed, and not reset")
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.ports[0]))


if __name__ == "__main__":
    unittest.main()
