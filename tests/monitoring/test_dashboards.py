"""Dashboards: what Grafana's types say, how they look, and that each way of loading them comes to the same."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

import grafana
import world

SCHEMA = world.INSTALLED / "dashboard-schema"
SOURCES = [("loki", "logs"), ("prometheus", "main"), ("prometheus", "other")]


def schema(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "dashboard.json"
        path.write_text(text)
        return subprocess.run([SCHEMA, path], capture_output=True, text=True, check=False)


def overlap(one, other):
    return (one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
            and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"])


class TestDashboards(unittest.TestCase):
    def each(self):
        for name in grafana.NAMES:
            with self.subTest(name):
                yield grafana.by_file(name)

    def test_committed_ones_are_what_the_generator_makes(self):
        ran = subprocess.run([sys.executable, "-B", grafana.FOLDER / "generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_grafanas_types_take_them(self):
        for name in grafana.NAMES:
            ran = schema((grafana.FOLDER / name).read_text())
            self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_grafanas_types_notice_what_is_wrong(self):
        text = (grafana.FOLDER / "hapax.json").read_text()
        for right, wrong in (('"unit"', '"units"'), ('"legendFormat"', '"legend"'), ('"displayMode"', '"display"'), ('"gridPos"', '"grid"'),
                             ('"includeAll"', '"all"'), ('"schemaVersion": 39', '"schemaVersion": "39"')):
            self.assertIn(right, text)
            self.assertNotEqual(schema(text.replace(right, wrong)).returncode, 0, wrong)

    def test_ids_are_unique_and_panels_lie_side_by_side(self):
        for dashboard in self.each():
            shown = dashboard["panels"]
            self.assertEqual(len({panel["id"] for panel in shown}), len(shown))
            places = [panel["gridPos"] for panel in shown]
            for at, place in enumerate(places):
                self.assertLessEqual(place["x"] + place["w"], 24)
                self.assertFalse([other for other in places[:at] if overlap(place, other)], place)

    def test_each_panel_says_what_it_means_and_what_to_do(self):
        for dashboard in self.each():
            for panel in grafana.panels(dashboard):
                if panel["type"] == "text":
                    continue
                self.assertGreater(len(panel["description"]), 40, panel["title"])
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], panel["title"])
                for link in panel.get("links", []):
                    runbook = link["url"].rsplit("/", 1)[1]
                    self.assertTrue((world.PROMETHEUS / "runbooks" / runbook).exists(), link["url"])

    def test_nothing_is_asked_for_when_they_are_loaded(self):
        for name in grafana.NAMES:
            text = (grafana.FOLDER / name).read_text()
            for word in ("__inputs", "__requires", "${DS_", '"id": null'):
                self.assertNotIn(word, text)

    def test_every_data_source_is_the_one_that_is_chosen(self):
        def uses(node):
            if isinstance(node, dict):
                if "datasource" in node:
                    yield node["datasource"]
                for value in node.values():
                    yield from uses(value)
            elif isinstance(node, list):
                for value in node:
                    yield from uses(value)

        for dashboard in self.each():
            self.assertEqual({json.dumps(used) for used in uses(dashboard)}, {'{"type": "prometheus", "uid": "${datasource}"}'})

    def test_each_way_of_loading_resolves_all_variables_alike(self):
        for name in grafana.NAMES:
            asked = {}
            for way, load in grafana.WAYS.items():
                dashboard = load(name)
                resolver = grafana.Resolver(dashboard, SOURCES, lambda selector, label: ["a.b", "c"])
                asked[way] = [(resolver.uid(target["datasource"]), resolver.text(target["expr"], __rate_interval="1m"))
                              for panel in grafana.panels(dashboard) for target in panel.get("targets", [])]
                self.assertEqual({uid for uid, _ in asked[way]}, {"main"})
                self.assertFalse([query for _, query in asked[way] if "$" in query])
            self.assertEqual(asked["file"], asked["config map"])
            self.assertEqual(asked["file"], asked["import"])

    def test_a_variable_that_is_not_there_is_noticed(self):
        dashboard = copy.deepcopy(grafana.by_file("hapax.json"))
        dashboard["templating"]["list"] = [variable for variable in dashboard["templating"]["list"] if variable["name"] != "namespace"]
        with self.assertRaises(KeyError):
            grafana.Resolver(dashboard, SOURCES, lambda selector, label: ["a"])

    def test_the_second_one_has_the_variables_of_kafkas_own(self):
        named = [variable["name"] for variable in grafana.by_file("hapax-producers.json")["templating"]["list"]]
        self.assertEqual(named, ["datasource", "env", "topic"])

    def test_the_provisioned_data_source_is_one_that_is_offered(self):
        provided = yaml.safe_load((grafana.FOLDER / "provisioning/datasources/prometheus.yaml").read_text())["datasources"]
        self.assertEqual([(source["type"], source["isDefault"]) for source in provided], [("prometheus", True)])


if __name__ == "__main__":
    unittest.main()
