"""What Kubernetes tells of pods becomes targets and labels as dashboards and alerts want them."""
import json
import pathlib
import sys
import tempfile
import unittest

import yaml

import world

sys.path.append(str(world.ROOT / "tests/charts"))
import rendering  # noqa: E402, the charts' tests have the renderer

META = "__meta_kubernetes_"
# Targets as a Prometheus would discover them: each port of each container of each pod, and a container without ports once.
SIDECAR = {"namespace": "shop", "pod_name": "orders-7d9-x2x", "pod_phase": "Running", "pod_container_name": "hapax", "pod_container_init": "true",
           "pod_container_port_name": "hapax-metrics", "pod_container_port_number": "9180", "pod_node_name": "node-a", "pod_label_app": "orders"}
DATA = {**SIDECAR, "pod_container_port_name": "hapax-kafka"}
APPLICATION = {**SIDECAR, "pod_container_name": "app", "pod_container_init": "false", "pod_container_port_name": "metrics"}
BARE = {key: value for key, value in APPLICATION.items() if "port" not in key}
COMPLETED = {**SIDECAR, "pod_name": "import-4fx", "pod_phase": "Succeeded"}


def by_operator(monitor):
    """The relabelling that the operator of Prometheus makes of a PodMonitor with one endpoint, its own first."""
    endpoint, = monitor["spec"]["podMetricsEndpoints"]
    meta = monitor["metadata"]
    return [
        {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"},
        {"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": endpoint["port"]},
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"target_label": "job", "replacement": f"{meta['namespace']}/{meta['name']}"},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
        *({snake(key): value for key, value in relabeling.items()} for relabeling in endpoint.get("relabelings", [])),
    ]


def snake(key):
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def pod_monitor():
    """The PodMonitor of the chart, as a user would switch it on."""
    with tempfile.TemporaryDirectory() as folder:
        values = pathlib.Path(folder) / "values.yaml"
        values.write_text(yaml.safe_dump({"metrics": {"podMonitor": {"enabled": True}}}))
        workshop = rendering.Workshop()
        try:
            rendered = workshop.render(rendering.Scenario("charts/hapax", values))
        finally:
            workshop.close()
    found, = (document for document in rendered if document["kind"] == "PodMonitor")
    return found


def by_hand():
    """Those of the scrape configuration for a Prometheus without the operator."""
    job, = yaml.safe_load((world.PROMETHEUS / "kubernetes.yaml").read_text())["scrape_configs"]
    assert job["kubernetes_sd_configs"] == [{"role": "pod"}]
    return job["relabel_configs"]


class TestDiscovery(unittest.TestCase):
    def scraped(self, job, relabeling, limits=None):
        """Labels of the targets that are scraped, how many are dropped, and the labels of their series."""
        with world.folder() as folder:
            hapax = world.Hapax("hapax", folder, f"127.0.0.1:{world.free_port()}")
            self.addCleanup(hapax.end)
            nobody = f"127.0.0.1:{world.free_port()}"
            found = [(hapax.target, SIDECAR), *((nobody, other) for other in (DATA, APPLICATION, BARE, COMPLETED))]
            groups = [{"targets": [address], "labels": {META + key: value for key, value in labels.items()}} for address, labels in found]
            (folder / "pods.json").write_text(json.dumps(groups))
            prometheus = world.Prometheus(folder, [{"job_name": job, "file_sd_configs": [{"files": [str(folder / "pods.json")]}],
                                                    "relabel_configs": relabeling, **(limits or {})}])
            self.addCleanup(prometheus.end)
            world.await_until("a scrape", 30, lambda: prometheus.query("hapax_build_info"))
            targets = prometheus.api("targets")
            names = {label for series in prometheus.api("series", **{"match[]": '{__name__=~"hapax_.+"}'}) for label in series}
            prometheus.end()
            hapax.end()
            self.assertEqual({target["health"] for target in targets["activeTargets"]}, {"up"})
            labels = [{key: value for key, value in target["labels"].items() if key != "instance"} for target in targets["activeTargets"]]
            return labels, len(targets["droppedTargets"]), names

    def check(self, labels, dropped, names, expected):
        self.assertEqual(labels, [expected])
        self.assertEqual(dropped, 4)
        self.assertFalse([name for name in names if name.startswith("exported_")], "a label of hapax that a target's label has pushed aside")

    def test_the_pod_monitor_of_the_chart_takes_the_sidecar_alone(self):
        monitor = pod_monitor()
        self.assertTrue(monitor["spec"]["namespaceSelector"]["any"])
        limits = {"honor_timestamps": False} | ({"sample_limit": monitor["spec"]["sampleLimit"]} if "sampleLimit" in monitor["spec"] else {})
        job = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
        self.check(*self.scraped("podMonitor/0", by_operator(monitor), limits), {
            "namespace": "shop", "pod": "orders-7d9-x2x", "container": "hapax", "endpoint": "hapax-metrics", "job": job})

    def test_the_configuration_without_operator_does_too(self):
        self.check(*self.scraped("hapax", by_hand()), {"namespace": "shop", "pod": "orders-7d9-x2x", "container": "hapax", "job": "hapax"})


if __name__ == "__main__":
    unittest.main()
