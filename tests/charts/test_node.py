"""What only a node can show, modelled by node.py: the container of the rendered chart, as a process, before a real producer.

Its program is hapax as users install it, its arguments, environment and probes are those of tests/charts/app.
"""

import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

import yaml

import node
import rendering
from brokers import Cluster

HAPAX = os.environ.get("HAPAX") or rendering.INSTALLED / "cargo" / "bin" / "hapax"
APPLICATION = [sys.executable, "-B", str(Path(__file__).with_name("application.py"))]


class TestPods(rendering.Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hapax-pod-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.ports = node.free_ports(6)

    def broker(self):
        broker = Cluster(self.ports[:2], partitions=1)
        self.addCleanup(broker.close)
        return broker

    def pod(self, kind, native, last_command="", life="", **values):
        """The Pod that the chart makes, with addresses that are free here."""
        bootstrap, first, last, admin = self.ports[2:]
        life = life or ("job" if kind == "Job" else "service")
        text = yaml.safe_dump({
            "kind": kind,
            "env": [{"name": "LIFE", "value": life}, {"name": "DRAIN", "value": last_command}],
            "hapax": {
                "native": native,
                "injectEnv": {"name": "KAFKA_BOOTSTRAP_SERVERS"},
                "upstream": {"bootstrap": [f"127.0.0.1:{self.ports[0]}"]},
                "listen": {"bootstrap": f"127.0.0.1:{bootstrap}", "brokerPorts": f"{first}-{last}"},
                "admin": {"listen": f"[::]:{admin}"},
                **values,
            },
        })  # fmt: skip
        path = self.folder / "values.yaml"
        path.write_text(text)
        documents = self.workshop.render(rendering.Scenario("tests/charts/app", path))
        _, spec = next(found for document in documents for found in rendering.pod_templates(document))
        pod = node.Pod(spec, HAPAX, APPLICATION, self.folder)
        self.addCleanup(pod.kill)
        return pod

    def start(self, pod):
        """Native or plain: in a plain Pod an application has to wait by itself, as the README of the chart says."""
        if pod.init:
            return pod.start()
        pod.container("hapax").start()
        pod.container("hapax").wait_until_started()
        pod.container("app").start()

    def start_and_await_messages(self, pod):
        self.start(pod)
        self.await_that(lambda: "acknowledged" in pod.container("app").text(), pod)

    def await_that(self, condition, pod):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, self.texts(pod))
            time.sleep(0.02)

    def texts(self, pod):
        return "\n".join(f"-- {c.name}\n{c.text()}" for c in pod.init + pod.containers if c.log.exists())

    def check_all_is_written(self, pod, broker, at_least):
        sent, acknowledged = map(int, re.search(r"sent (\d+) acknowledged (\d+)", pod.container("app").text()).groups())
        self.assertEqual((sent, broker.records()), (acknowledged, acknowledged), self.texts(pod))
        self.assertGreaterEqual(sent, at_least)

    def test_a_service_starts_behind_hapax_and_ends_before_it(self):
        broker = self.broker()
        pod = self.pod("Deployment", native=True)
        self.start_and_await_messages(pod)
        self.assertEqual(pod.delete(), {"app": 0, "hapax": 0}, self.texts(pod))
        self.check_all_is_written(pod, broker, at_least=101)
        self.assertLess(pod.container("app").ended_at, pod.container("hapax").ended_at)
        self.assertNotIn("draining", pod.container("hapax").text(), "clients were still there when hapax was told to end")

    def test_a_service_in_a_plain_pod_still_writes_its_last_messages(self):
        broker = self.broker()
        pod = self.pod("Deployment", native=False)
        self.start_and_await_messages(pod)
        self.assertEqual(pod.delete(), {"app": 0, "hapax": 0}, self.texts(pod))
        self.check_all_is_written(pod, broker, at_least=101)
        self.assertIn("draining", pod.container("hapax").text())
        self.assertNotIn("clients are cut", pod.container("hapax").text())

    def test_an_idle_service_in_a_plain_pod_has_time_for_its_last_messages(self):
        broker = self.broker()
        pod = self.pod("Deployment", native=False, life="idle")
        self.start(pod)
        self.await_that(lambda: "idle" in pod.container("app").text(), pod)
        self.assertEqual(pod.delete(), {"app": 0, "hapax": 0}, self.texts(pod))
        self.check_all_is_written(pod, broker, at_least=50)

    def test_a_job_completes(self):
        broker = self.broker()
        pod = self.pod("Job", native=True)
        pod.start()
        self.assertEqual(pod.finish(60), {"app": 0, "hapax": 0}, self.texts(pod))
        self.check_all_is_written(pod, broker, at_least=50)

    def test_a_job_in_a_plain_pod_completes_by_its_last_command(self):
        admin = f"127.0.0.1:{self.ports[5]}"
        commands = {
            "hapax drain": f"{HAPAX} drain --admin {admin}",
            "the API": f"curl --fail --silent --show-error --request POST http://{admin}/api/v1/drain",
        }
        for name, command in commands.items():
            with self.subTest(name):
                broker = self.broker()
                pod = self.pod("Job", native=False, last_command=command)
                self.start(pod)
                self.assertEqual(pod.finish(60), {"app": 0, "hapax": 0}, self.texts(pod))
                self.check_all_is_written(pod, broker, at_least=50)
                broker.close()

    def test_a_job_in_a_plain_pod_without_it_never_completes(self):
        self.broker()
        pod = self.pod("Job", native=False)
        self.start(pod)
        self.assertEqual(pod.container("app").wait(60), 0, self.texts(pod))
        with self.assertRaisesRegex(node.Failed, "hapax has not ended"):
            pod.container("hapax").wait(2)

    def test_the_application_starts_without_a_broker_unless_it_is_asked_to_wait(self):
        pod = self.pod("Job", native=True)
        pod.init[0].start()
        pod.init[0].wait_until_started()
        pod.kill()
        pod = self.pod("Job", native=True, config={"startup": {"requireUpstream": True}})
        pod.init[0].start()
        self.await_that(lambda: pod.init[0].probe("livenessProbe"), pod)
        self.assertFalse(pod.init[0].probe("startupProbe"))
        broker = self.broker()
        pod.init[0].wait_until_started()
        pod.containers[0].start()
        self.assertEqual(pod.finish(60), {"app": 0, "hapax": 0}, self.texts(pod))
        self.check_all_is_written(pod, broker, at_least=50)

    def test_with_its_admin_address_on_loopback_hapax_asks_itself(self):
        self.broker()
        pod = self.pod("Job", native=True, admin={"listen": f"127.0.0.1:{self.ports[5]}"})
        self.assertIn("exec", pod.init[0].spec["startupProbe"])
        pod.start()
        self.assertTrue(pod.init[0].probe("livenessProbe"))
        self.assertEqual(pod.finish(60), {"app": 0, "hapax": 0}, self.texts(pod))

    def test_a_probe_of_a_wrong_port_is_found(self):
        pod = self.pod("Job", native=True, probes={"startup": {"failureThreshold": 2, "httpGet": {"path": "/startupz", "port": 1}}})
        with self.assertRaisesRegex(node.Failed, "the startupProbe of hapax did not succeed"):
            pod.start()

    def test_the_pod_has_longer_than_hapax_takes_at_most(self):
        for native in True, False:
            pod = self.pod("Deployment", native=native, drain={"timeout": "70s"})
            self.assertEqual(pod.grace, 75)
            environment = pod.container("hapax").environment
            self.assertEqual(environment["HAPAX_DRAIN_TIMEOUT"], "70s")


if __name__ == "__main__":
    unittest.main()
