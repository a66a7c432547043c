"""A release is installed, upgraded to a later version and removed, by Helm, with its objects really on the server."""

import shutil
import unittest

import yaml

import machinery
import rendering
from test_names import names_of

CHART = "charts/hapax"


class TestUpgrade(unittest.TestCase):
    def scenarios(self):
        return [scenario for scenario in rendering.scenarios(CHART) if scenario.values]

    def objects(self, namespace, release):
        text = machinery.helm("3", "get", "manifest", release, "--namespace", namespace)
        return [document for document in yaml.safe_load_all(text) if document]

    def later_version(self):
        """The chart as its next version would be: the version is in labels, and hapax's in the image."""
        chart = machinery.workshop().chart(CHART)
        later = chart.with_name("hapax-later")
        if not later.exists():
            shutil.copytree(chart, later)
            path = later / "Chart.yaml"
            described = yaml.safe_load(path.read_text()) | {"version": "0.1.1", "appVersion": "0.1.1"}
            path.write_text(yaml.safe_dump(described))
        return later

    def check_upgrade(self, first, second):
        for scenario in self.scenarios():
            name = scenario.values.name.removesuffix("-values.yaml")
            with self.subTest(f"Helm {first}, then {second}: {name}"):
                namespace = machinery.namespace(f"{name}-{first}-{second}")
                arguments = ["shop", "--namespace", namespace, "--values", scenario.values]
                for other in self.other_namespaces(scenario):
                    machinery.namespace(other)
                machinery.helm(first, "install", arguments[0], machinery.workshop().chart(CHART), *arguments[1:])
                before = names_of(self.objects(namespace, "shop"))
                change = ["--set", "commonLabels.added=later", "--set", "drain.timeout=40s"]
                machinery.helm(second, "upgrade", arguments[0], self.later_version(), *arguments[1:], *change)
                after = names_of(self.objects(namespace, "shop"))
                self.assertEqual(before, after)
                machinery.helm(second, "uninstall", "shop", "--namespace", namespace)
                machinery.rows["upgrade"].append((first, second, name, len(after)))

    def other_namespaces(self, scenario):
        documents = machinery.workshop().render(scenario)
        return {document["metadata"].get("namespace") for document in documents} - {None, rendering.NAMESPACE}

    def test_helm_3(self):
        self.check_upgrade("3", "3")

    def test_helm_4(self):
        self.check_upgrade("4", "4")

    def test_helm_4_takes_over_from_3(self):
        self.check_upgrade("3", "4")
