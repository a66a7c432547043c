"""Injection on a server that evaluates the policies: what is changed, what is left alone, and what is said of it."""

import copy
import json
import unittest

import machinery

CHART = "charts/hapax"
RELEASE, HOME, TEAM, ELSEWHERE = "hapax", "hapax-system", "orders", "elsewhere"
BROKERS = "kafka:9092"
VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
ADDRESS = {"name": VARIABLE, "value": "127.0.0.1:19092"}
SECURITY = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PATHS = {
    "Pod": [],
    "Deployment": ["spec", "template"],
    "StatefulSet": ["spec", "template"],
    "DaemonSet": ["spec", "template"],
    "Job": ["spec", "template"],
    "CronJob": ["spec", "jobTemplate", "spec", "template"],
}


def container(name, **more):
    return {"name": name, "image": "registry.example.com/app:1", "securityContext": SECURITY, **more}


def pod(*containers, labels=None, annotations=None, name="app", **spec):
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"containers": list(containers) or [container("app")], **spec},
    }


def workload(kind, template, name="app"):
    """An object of that kind with the Pod as its template."""
    inner = {"metadata": {key: value for key, value in template["metadata"].items() if key != "name"}, "spec": copy.deepcopy(template["spec"])}
    if kind in ("Job", "CronJob"):
        inner["spec"]["restartPolicy"] = "Never"
    spec = {"template": inner}
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        inner["metadata"]["labels"] = {"app": name, **inner["metadata"].get("labels", {})}
        spec["selector"] = {"matchLabels": {"app": name}}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def pod_in(document):
    """The Pod of an object."""
    for part in PATHS[document["kind"]]:
        document = document[part]
    return document


def sidecars(found):
    return [item["name"] for item in found["spec"].get("initContainers", [])]


def label(found, name):
    return found["metadata"].get("labels", {}).get(f"hapax.io/{name}")


class Injection(unittest.TestCase):
    """Installs injection with the values of a class, by Helm, which finds out by itself what the server serves."""

    values: list[str] = []

    @classmethod
    def setUpClass(cls):
        machinery.namespace(HOME)
        machinery.namespace(TEAM, **{"hapax.io/inject": "enabled"})
        machinery.namespace(ELSEWHERE)
        arguments = ["--namespace", HOME, "--set", "inject.enabled=true", "--set-json", f'upstream.bootstrap=["{BROKERS}"]', *cls.values]
        machinery.helm("3", "install", RELEASE, machinery.workshop().chart(CHART), *arguments)
        cls.addClassCleanup(cls.remove)
        machinery.await_that(lambda: sidecars(cls.create(pod())) == ["hapax"], "the policy works")

    @classmethod
    def remove(cls):
        machinery.helm("3", "uninstall", RELEASE, "--namespace", HOME)
        machinery.await_that(lambda: sidecars(cls.create(pod())) == [], "the policy is gone")

    @staticmethod
    def create(document, namespace=TEAM):
        return machinery.cluster().create(document, "--dry-run=server", "-n", namespace)

    def check_injected(self, found):
        self.assertEqual(sidecars(found)[0], "hapax")
        sidecar = found["spec"]["initContainers"][0]
        self.assertEqual(sidecar["restartPolicy"], "Always")
        self.assertIn({"name": "HAPAX_UPSTREAM", "value": BROKERS}, sidecar["env"])
        self.assertEqual(label(found, "injected"), "true")
        self.assertIsNone(label(found, "injection-skipped"))

    def check_untouched(self, document, namespace=TEAM):
        found = self.create(document, namespace)
        self.assertEqual(sidecars(pod_in(found)), sidecars(pod_in(document)))
        self.assertIsNone(label(pod_in(found), "injected"))
        return pod_in(found)

    def run(self, result=None):
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) == before:
            machinery.rows["injection"].append((type(self).__doc__.splitlines()[0], self._testMethodName.removeprefix("test_").replace("_", " ")))


class TestPods(Injection):
    """Pods, as by default, with the variable"""

    values = ["--set", f"sidecar.injectEnv.name={VARIABLE}"]

    def test_a_pod_gets_hapax_first(self):
        found = self.create(pod(initContainers=[container("migrate")]))
        self.check_injected(found)
        self.assertEqual(sidecars(found), ["hapax", "migrate"])

    def test_it_is_kept(self):
        found = machinery.cluster().create(pod(name="kept"), "-n", TEAM)
        self.check_injected(found)
        kept = json.loads(machinery.cluster().kubectl("get", "pod", "kept", "-n", TEAM, "-o", "json"))
        self.assertEqual(kept["spec"]["initContainers"], found["spec"]["initContainers"])

    def test_the_variable_is_set_first_and_replaces_nothing(self):
        other = {"name": "OTHER", "value": "1"}
        own = {"name": VARIABLE, "value": "my-own:9092"}
        reference = {"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "kafka", "key": "brokers"}}}
        found = self.create(pod(container("a"), container("b", env=[other]), container("c", env=[other, own]), container("d", env=[reference])))
        self.assertEqual([item["env"] for item in found["spec"]["containers"]], [[ADDRESS], [ADDRESS, other], [other, own], [reference]])
        self.assertNotIn("hapax.io/env-not-set", found["metadata"]["annotations"])

    def test_a_container_whose_variables_cannot_be_seen_is_left_alone_and_named(self):
        source = [{"configMapRef": {"name": "settings"}}]
        own = {"name": VARIABLE, "value": "my-own:9092"}
        found = self.create(pod(container("a", envFrom=source), container("b"), container("c", envFrom=source, env=[own])))
        self.assertEqual([item.get("env") for item in found["spec"]["containers"]], [None, [ADDRESS], [own]])
        self.assertEqual(found["metadata"]["annotations"]["hapax.io/env-not-set"], "a")

    def test_kubectl_logs_shows_the_application_unless_something_else_is_asked(self):
        key = "kubectl.kubernetes.io/default-container"
        self.assertEqual(self.create(pod(container("a"), container("b")))["metadata"]["annotations"][key], "a")
        self.assertEqual(self.create(pod(container("a"), container("b"), annotations={key: "b"}))["metadata"]["annotations"], {key: "b"})

    def test_labels_and_annotations_stay(self):
        found = self.create(pod(labels={"app": "a"}, annotations={"note": "b"}))
        self.assertEqual(found["metadata"]["labels"], {"app": "a", "hapax.io/injected": "true"})
        self.assertEqual(found["metadata"]["annotations"]["note"], "b")

    def test_another_namespace_is_left_alone(self):
        self.check_untouched(pod(), ELSEWHERE)

    def test_what_gets_none_says_why(self):
        cases = {
            "opted-out": pod(labels={"hapax.io/inject": "disabled"}),
            "container-exists": pod(container("app"), initContainers=[container("hapax", restartPolicy="Always")]),
        }
        for reason, document in cases.items():
            with self.subTest(reason):
                found = self.check_untouched(document)
                self.assertEqual(label(found, "injection-skipped"), reason)
                self.assertNotIn("env", found["spec"]["containers"][0])

    def test_a_pod_that_hapax_cannot_run_in_is_left_alone(self):
        machinery.cluster().apply([{
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "privileged", "labels": {"hapax.io/inject": "enabled"}},
        }])  # fmt: skip
        plain = {"name": "app", "image": "registry.example.com/app:1"}
        cases = {"host-network": pod(hostNetwork=True), "windows": pod(plain, os={"name": "windows"})}
        for reason, document in cases.items():
            with self.subTest(reason):
                found = self.check_untouched(document, "privileged")
                self.assertEqual(label(found, "injection-skipped"), reason)

    def test_templates_are_left_alone_and_their_pods_get_hapax(self):
        for kind in PATHS:
            if kind != "Pod":
                with self.subTest(kind):
                    template = self.check_untouched(workload(kind, pod()))
                    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "generateName": "app-"}, "spec": template["spec"]}
                    self.check_injected(self.create(made))

    def test_a_pod_that_exists_can_be_changed(self):
        server = machinery.cluster()
        server.create(pod(name="changing"), "-n", TEAM)
        server.kubectl("label", "pod", "changing", "-n", TEAM, "more=labels")
        server.kubectl("delete", "pod", "changing", "-n", TEAM, "--wait=false")


class TestTemplates(Injection):
    """Every workload, with Secrets, a registry's Secret and texts that need care"""

    TEXT = "it's \"quoted\" \\ $(X) {{ y }} <é> 雪\n`two` lines"
    values = [
        "--set-json", 'inject.workloads=["pods","deployments","statefulsets","daemonsets","jobs","cronjobs"]',
        "--set-json", "sidecar.extraEnv=" + json.dumps({"TEXT": TEXT}),
        "--set-json", 'upstream.tls={"enabled":true,"existingSecret":"kafka-ca"}',
        "--set-json", 'imagePullSecrets=["registry"]',
        "--set", f"sidecar.injectEnv.name={VARIABLE}",
        "--set", "inject.evenWithEnvFrom=true",
    ]  # fmt: skip

    def test_each_kind_gets_hapax_in_its_template(self):
        for kind in PATHS:
            with self.subTest(kind):
                document = pod(initContainers=[container("migrate")])
                found = pod_in(self.create(workload(kind, document) if kind != "Pod" else document))
                self.check_injected(found)
                self.assertEqual(sidecars(found), ["hapax", "migrate"])
                self.assertEqual(found["spec"]["containers"][0]["env"], [ADDRESS])

    def test_a_template_that_stays_out_is_left_alone(self):
        for kind in PATHS:
            if kind != "Pod":
                with self.subTest(kind):
                    found = self.check_untouched(workload(kind, pod(labels={"hapax.io/inject": "disabled"})))
                    self.assertEqual(label(found, "injection-skipped"), "opted-out")
                    self.check_untouched(workload(kind, pod()), ELSEWHERE)

    def test_a_pod_of_an_injected_template_has_one_hapax(self):
        template = pod_in(self.create(workload("Job", pod())))
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "app-x"}, "spec": template["spec"]}
        found = self.create(made)
        self.assertEqual(sidecars(found), ["hapax"])
        self.assertEqual([volume["name"] for volume in found["spec"]["volumes"]], ["hapax"])

    def test_files_of_secrets_are_mounted_beside_what_is_there(self):
        found = self.create(pod(volumes=[{"name": "data", "emptyDir": {}}], imagePullSecrets=[{"name": "own"}]))
        self.assertEqual([volume["name"] for volume in found["spec"]["volumes"]], ["data", "hapax"])
        self.assertEqual(found["spec"]["volumes"][1]["projected"]["sources"][0]["secret"]["name"], "kafka-ca")
        self.assertEqual(found["spec"]["initContainers"][0]["volumeMounts"][0]["mountPath"], "/etc/hapax")
        self.assertEqual(found["spec"]["imagePullSecrets"], [{"name": "own"}, {"name": "registry"}])
        self.assertEqual(self.create(pod(imagePullSecrets=[{"name": "registry"}]))["spec"]["imagePullSecrets"], [{"name": "registry"}])

    def test_a_volume_of_that_name_is_in_the_way(self):
        found = self.check_untouched(pod(volumes=[{"name": "hapax", "emptyDir": {}}]))
        self.assertEqual(label(found, "injection-skipped"), "volume-exists")

    def test_texts_arrive_as_they_are(self):
        env = {item["name"]: item.get("value") for item in self.create(pod())["spec"]["initContainers"][0]["env"]}
        self.assertEqual(env["TEXT"], self.TEXT)

    def test_the_variable_is_set_beside_envfrom_where_it_is_asked(self):
        found = self.create(pod(container("a", envFrom=[{"configMapRef": {"name": "settings"}}])))
        self.assertEqual(found["spec"]["containers"][0]["env"], [ADDRESS])

    def test_only_who_changes_the_template_rolls_the_pods(self):
        server = machinery.cluster()
        machinery.namespace("older")
        server.create(workload("Deployment", pod()), "-n", "older")
        machinery.namespace("older", **{"hapax.io/inject": "enabled"})
        machinery.await_that(lambda: sidecars(self.create(pod(), "older")) == ["hapax"], "the label of the namespace is seen")
        server.kubectl("annotate", "deployment", "app", "-n", "older", "note=a-controller-wrote-this")
        self.assertEqual(sidecars(pod_in(self.get("older"))), [])
        server.kubectl("set", "image", "deployment/app", "app=registry.example.com/app:2", "-n", "older")
        self.check_injected(pod_in(self.get("older")))
        server.kubectl("set", "image", "deployment/app", "app=registry.example.com/app:3", "-n", "older")
        self.assertEqual(sidecars(pod_in(self.get("older"))), ["hapax"])

    def get(self, namespace):
        return json.loads(machinery.cluster().kubectl("get", "deployment", "app", "-n", namespace, "-o", "json"))


class TestSelector(Injection):
    """Namespaces by a selector, and no variable"""

    values = ["--set-json", 'inject.namespaceSelector={"matchLabels":{"kubernetes.io/metadata.name":"orders"}}', "--set", "sidecar.name=kafka-proxy"]

    @classmethod
    def create(cls, document, namespace=TEAM):
        found = Injection.create(document, namespace)
        for item in pod_in(found)["spec"].get("initContainers", []):
            item["name"] = "hapax" if item["name"] == "kafka-proxy" else item["name"]
        return found

    def test_only_these_namespaces_take_part(self):
        self.check_injected(self.create(pod()))
        machinery.namespace("labelled", **{"hapax.io/inject": "enabled"})
        self.check_untouched(pod(), "labelled")

    def test_the_application_keeps_its_environment(self):
        self.assertNotIn("env", self.create(pod())["spec"]["containers"][0])

