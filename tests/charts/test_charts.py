"""Every scenario of every chart is one that Helm and Kubernetes take, and what is generated is fresh."""

import subprocess
import sys
import unittest

import rendering
import schemas


class TestScenarios(rendering.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scenarios = [scenario for chart in rendering.applications() for scenario in rendering.scenarios(chart)]

    def test_there_are_scenarios(self):
        for chart in rendering.applications():
            self.assertGreater(len(rendering.scenarios(chart)), 1, f"{chart}/ci has no *-values.yaml")

    def test_helm_finds_nothing_to_say(self):
        for scenario in self.scenarios:
            with self.subTest(str(scenario)):
                self.workshop.lint(scenario)
        for chart in filter(rendering.is_library, rendering.charts()):
            with self.subTest(chart):
                self.workshop.lint(rendering.Scenario(chart, None))

    def test_kubernetes_knows_every_field(self):
        for scenario in self.scenarios:
            for document in self.workshop.render(scenario):
                with self.subTest(f"{scenario}: {document['kind']} {document['metadata']['name']}"):
                    self.assertEqual(schemas.faults(document), [])

    def test_no_object_comes_twice(self):
        for scenario in self.scenarios:
            with self.subTest(str(scenario)):
                names = [(d["apiVersion"], d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in self.workshop.render(scenario)]
                self.assertEqual(sorted(map(str, names)), sorted(map(str, set(names))))

    def test_every_pod_keeps_to_restricted(self):
        for scenario in self.scenarios:
            for document in self.workshop.render(scenario):
                for _, spec in rendering.pod_templates(document):
                    with self.subTest(f"{scenario}: {document['kind']} {document['metadata']['name']}"):
                        self.assertEqual(unrestricted(spec), [])

    def test_a_library_renders_nothing_on_its_own(self):
        for chart in filter(rendering.is_library, rendering.charts()):
            with self.assertRaisesRegex(rendering.Refused, "library charts are not installable"):
                self.workshop.template(rendering.Scenario(chart, None))


class TestGenerated(unittest.TestCase):
    def test_schemas_and_tables_are_fresh(self):
        done = subprocess.run([sys.executable, "generate.py", "--check"], cwd=rendering.ROOT / "tests/charts", capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class TestStrictness(unittest.TestCase):
    """The validation can fail."""

    def pod(self, **spec):
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b"}], **spec}}

    def monitor(self, **endpoint):
        spec = {"selector": {}, "podMetricsEndpoints": [{"port": "a", **endpoint}]}
        return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "a"}, "spec": spec}

    def test_what_is_right_has_no_fault(self):
        native = {"name": "c", "image": "d", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Mi", "cpu": 1}}}
        self.assertEqual(schemas.faults(self.pod(initContainers=[native])), [])
        self.assertEqual(schemas.faults(self.monitor(interval="30s")), [])

    def test_an_unknown_field_is_a_fault(self):
        self.assertEqual(len(schemas.faults(self.pod(initContainer=[]))), 1)
        self.assertEqual(len(schemas.faults(self.monitor(intervall="30s"))), 1)

    def test_a_wrong_type_is_a_fault(self):
        self.assertEqual(len(schemas.faults(self.pod(terminationGracePeriodSeconds="30"))), 1)
        self.assertEqual(len(schemas.faults(self.pod(containers=None))), 1)

    def test_a_missing_field_is_a_fault(self):
        self.assertEqual(len(schemas.faults(self.pod(initContainers=[{"image": "a"}]))), 1)

    def test_an_unknown_kind_is_a_fault(self):
        self.assertEqual(schemas.faults({"apiVersion": "v1", "kind": "Deployment"}), ["there is no Deployment of v1"])

    def test_a_variable_that_is_there_twice_is_a_fault(self):
        container = {"name": "a", "image": "b", "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]}
        self.assertEqual(schemas.faults(self.pod(containers=[container])), ["$.spec.containers[0].env: X is there twice"])

    def test_a_pod_that_may_be_root_is_not_restricted(self):
        self.assertIn("a: runAsNonRoot", unrestricted(self.pod()["spec"]))


def unrestricted(spec):
    """Where a Pod falls short of the Pod Security Standard restricted; tests/run kube asks a server for all of it."""
    found = []
    pod = spec.get("securityContext", {})
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        own = container.get("securityContext", {})
        wanted = {
            "runAsNonRoot": own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True,
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities", {}).get("drop") == ["ALL"],
            "seccompProfile": own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") == "RuntimeDefault",
            "runAsUser": own.get("runAsUser", pod.get("runAsUser", 1)) != 0,
        }
        found += [f"{container['name']}: {field}" for field, is_met in wanted.items() if not is_met]
    return found


if __name__ == "__main__":
    unittest.main()
