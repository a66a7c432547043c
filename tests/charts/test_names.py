"""The names and selectors of the first release, which an upgrade from it has to find again: selectors cannot change.

Before 0.1.0 is out, UPDATE_NAMES=1 in the environment writes names-0.1.0.json anew. That upgrades work is shown on a server
by tests/run kube.
"""

import json
import os
import unittest
from pathlib import Path

import rendering

NAMES = Path(__file__).with_name("names-0.1.0.json")
CHART = "charts/hapax"


def names_of(documents):
    """What has to stay from release to release: names, and the selectors of workloads."""
    found = {}
    for document in documents:
        selector = document["spec"]["selector"] if document["kind"] in ("Deployment", "StatefulSet", "DaemonSet") else None
        found[f"{document['kind']} {document['metadata']['name']}"] = selector
    return dict(sorted(found.items()))


class TestNames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        workshop = rendering.Workshop()
        cls.addClassCleanup(workshop.close)
        scenarios = [scenario for scenario in rendering.scenarios(CHART) if scenario.values]
        cls.now = {scenario.values.name.removesuffix("-values.yaml"): names_of(workshop.render(scenario)) for scenario in scenarios}
        if os.environ.get("UPDATE_NAMES"):
            NAMES.write_text(json.dumps(cls.now, indent=1) + "\n")

    def test_they_are_those_of_the_first_release(self):
        for scenario, names in json.loads(NAMES.read_text()).items():
            for name, selector in names.items():
                with self.subTest(f"{scenario}: {name}"):
                    self.assertIn(name, self.now[scenario])
                    self.assertEqual(self.now[scenario][name], selector)


if __name__ == "__main__":
    unittest.main()
