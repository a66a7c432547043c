"""A server takes every scenario of every chart, in a namespace that enforces Pod Security restricted."""

import unittest

import machinery
import rendering


def as_pods(document):
    """The Pods that a controller would make of an object: Pod Security only warns of a Deployment, and refuses its Pods."""
    for number, (metadata, spec) in enumerate(rendering.pod_templates(document)):
        # A template of a Deployment may leave this out, and a Pod's default is the same.
        kept = {key: value for key, value in metadata.items() if key in ("labels", "annotations") and value}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{document['kind'].lower()}-{number}", **kept}, "spec": spec}


class TestScenarios(unittest.TestCase):
    def check_all(self, version):
        server = machinery.cluster()
        namespace = machinery.namespace(rendering.NAMESPACE)
        for scenario in machinery.every_scenario():
            with self.subTest(f"Helm {version}: {scenario}"):
                documents = machinery.workshop().render(scenario, program=machinery.HELMS[version])
                for other in {document["metadata"].get("namespace") for document in documents} - {None, namespace}:
                    machinery.namespace(other)
                pods = [pod for document in documents for pod in as_pods(document)]
                for document in documents:
                    place = document["metadata"].get("namespace", namespace)
                    server.apply([document], "--dry-run=server", "--warnings-as-errors", "-n", place)
                for pod in pods:
                    server.create(pod, "--dry-run=server", "--warnings-as-errors", "-n", namespace)
                machinery.rows["scenarios"].append((version, str(scenario), len(documents), len(pods)))

    def test_helm_3(self):
        self.check_all("3")

    def test_helm_4(self):
        self.check_all("4")

    def test_both_render_the_same(self):
        for scenario in machinery.every_scenario():
            with self.subTest(str(scenario)):
                three, four = (machinery.workshop().render(scenario, program=program) for program in machinery.HELMS.values())
                self.assertEqual(sorted(map(str, three)), sorted(map(str, four)))

    def test_what_is_not_restricted_is_refused(self):
        namespace = machinery.namespace("refusing")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        with self.assertRaisesRegex(machinery.Refused, "violates PodSecurity"):
            machinery.cluster().create(pod, "--dry-run=server", "-n", namespace)

    def test_an_unknown_field_is_refused(self):
        monitor = {"selector": {}, "podMetricsEndpoints": [{"intervall": "30s"}]}
        document = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "a"}, "spec": monitor}
        with self.assertRaisesRegex(machinery.Refused, "intervall"):
            machinery.cluster().create(document, "--dry-run=server", "-n", "default")
