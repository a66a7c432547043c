"""Injection, as far as rendering shows it; tests/run kube has an API server carry it out."""

import re
import unittest

import rendering

CHART = rendering.Scenario("charts/hapax", None)
V1BETA1, V1 = (f"admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy" for version in ("v1beta1", "v1"))
ON = ["--set", "inject.enabled=true", "--set", "upstream.bootstrap={kafka:9092}"]


class TestInject(rendering.Case):
    def template(self, *arguments, served=()):
        """What a cluster that serves this is given."""
        offered = [part for version in served for part in ("--api-versions", version)]
        return rendering.helm("template", "shop", self.workshop.chart("charts/hapax"), "--namespace", "team", *offered, *arguments)

    def versions(self, text):
        return set(re.findall(r"apiVersion: (\S+)\nkind: MutatingAdmissionPolicy", text))

    def test_nothing_of_it_is_there_by_itself(self):
        self.assertNotIn("Admission", self.template(served=[V1]))

    def test_the_newest_version_that_the_cluster_serves_is_taken(self):
        cases = {(V1BETA1,): "v1beta1", (V1,): "v1", (V1, V1BETA1): "v1"}
        for served, version in cases.items():
            self.assertEqual(self.versions(self.template(*ON, served=served)), {f"admissionregistration.k8s.io/{version}"})

    def test_a_cluster_that_serves_none_is_told_what_to_do(self):
        alpha = "admissionregistration.k8s.io/v1alpha1/MutatingAdmissionPolicy"
        for served in [], [alpha]:
            with self.assertRaises(rendering.Refused) as refused:
                self.template(*ON, "--kube-version", "1.33.2", served=served)
            for told in "Kubernetes v1.33.2", "serves no MutatingAdmissionPolicy", "--feature-gates", "hapax-sidecar", "inject.apiVersion=v1":
                self.assertIn(told, str(refused.exception))

    def test_without_a_cluster_the_version_can_be_named(self):
        self.assertEqual(self.versions(self.template(*ON, "--set", "inject.apiVersion=v1")), {"admissionregistration.k8s.io/v1"})

    def test_both_versions_are_the_same_but_for_that(self):
        beta, stable = (self.template(*ON, "--set", f"inject.apiVersion={version}") for version in ("v1beta1", "v1"))
        self.assertEqual(beta.replace("k8s.io/v1beta1", "k8s.io/v1"), stable)

    def test_values_that_make_no_sense_are_refused(self):
        cases = {
            "inject.workloads={replicasets}": "workloads",
            "inject.failurePolicy=Never": "failurePolicy",
            "inject.apiVersion=v1alpha1": "apiVersion",
            "inject.enable=true": "enable",
        }
        for value, told in cases.items():
            with self.subTest(value), self.assertRaisesRegex(rendering.Refused, told):
                self.template(*ON, "--set", value, served=[V1])

    def test_releases_of_the_same_name_in_two_namespaces_do_not_meet(self):
        name = re.search(r"kind: MutatingAdmissionPolicy\nmetadata:\n  name: (\S+)", self.template(*ON, served=[V1])).group(1)
        self.assertEqual(name, "team.shop-hapax.inject-pods")


if __name__ == "__main__":
    unittest.main()
