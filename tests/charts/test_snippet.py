"""The container for charts of others: `hapax snippet` and Helm print the same one, and so does hapax-sidecar."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

import rendering
from generate import hapax

KEYS = {"native": "initContainers", "plain": "extraContainers"}


def snippet(*arguments, **environment):
    return subprocess.run([hapax(), "snippet", *arguments], env=environment, capture_output=True, text=True)


def comparable(container):
    """Variables and arguments of a flag may stand in any order."""
    return {**container, "env": sorted(container["env"], key=lambda variable: variable["name"])}


class Snippets(rendering.Case):
    maxDiff = None

    def rendered(self, chart, values, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            return self.workshop.template(rendering.Scenario(chart, Path(file.name)), *arguments)

    def by_helm(self, values):
        values = {"snippet": {"enabled": True}, **values}
        return yaml.safe_load(self.rendered("charts/hapax", values, "--show-only", "templates/snippets.yaml"))

    def by_library(self, values, key):
        workload = yaml.safe_load(self.rendered("tests/charts/app", {"hapax": values}, "--show-only", "templates/workload.yaml"))
        containers = workload["spec"]["template"]["spec"]["initContainers" if key == "initContainers" else "containers"]
        return containers[-1]

    def test_the_command_and_both_charts_have_one_container(self):
        for form, key in KEYS.items():
            for flags, values in [
                (["--upstream=kafka:9092"], {"upstream": {"bootstrap": ["kafka:9092"]}}),
                (
                    ["--upstream", "kafka-0.kafka:9092,[::1]:9092", "--mode", "observe", "--image", "mirror.example.com/own/hapax:2"],
                    {
                        "upstream": {"bootstrap": ["kafka-0.kafka:9092", "[::1]:9092"]},
                        "config": {"sequence": {"mode": "observe"}},
                        "image": {"registry": "mirror.example.com", "repository": "own/hapax", "tag": "2"},
                    },
                ),
            ]:
                with self.subTest(form=form, flags=flags):
                    done = snippet("--form", form, *flags)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    printed = yaml.safe_load(done.stdout)
                    self.assertEqual(list(printed), [key])
                    [container] = printed[key]
                    native = form == "native"
                    [helms] = self.by_helm({**values, "sidecar": {"native": native}})[key]
                    self.assertEqual(comparable(container), comparable(helms))
                    self.assertEqual(comparable(container), comparable(self.by_library({**values, "native": native}, key)))

    def test_native_is_what_nobody_has_to_ask_for(self):
        done = snippet(HAPAX_UPSTREAM="kafka:9092")
        self.assertEqual(done.stdout, snippet("--form=native", "--upstream=kafka:9092").stdout)
        [container] = yaml.safe_load(done.stdout)["initContainers"]
        self.assertEqual(container["restartPolicy"], "Always")

    def test_helm_brings_the_volumes_of_secrets_too(self):
        tls = {"enabled": True, "existingSecret": "kafka-tls"}
        fragment = self.by_helm({"upstream": {"bootstrap": ["kafka:9094"], "tls": tls}})
        [container] = fragment["initContainers"]
        [mount] = container["volumeMounts"]
        [volume] = fragment["extraVolumes"]
        self.assertEqual(mount["name"], volume["name"])

    def test_what_is_typed_wrong_is_told(self):
        for arguments, said in [
            ([], "--upstream"),
            (["--upstream=kafka"], "kafka"),
            (["--upstream=kafka:9092", "--mode=watch"], "observe"),
            (["--upstream=kafka:9092", "--form=deployment"], "native"),
            (["--upstream=kafka:9092", "--image=a b"], "REPOSITORY:TAG"),
        ]:
            with self.subTest(arguments):
                done = snippet(*arguments)
                self.assertEqual((done.returncode, done.stdout), (64, ""))
                self.assertIn(said, done.stderr)

    def test_nothing_is_rendered_that_was_not_asked_for(self):
        with self.assertRaises(rendering.Refused):
            self.rendered("charts/hapax", {}, "--show-only", "templates/snippets.yaml")


if __name__ == "__main__":
    unittest.main()
