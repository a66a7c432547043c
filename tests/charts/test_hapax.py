"""What the chart hapax promises about its gateway and its monitoring objects, read from what Helm renders.

HAPAX_TESTS_WRITE=1 writes the golden files anew; look at what changed.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import generate
import rendering
import yaml
from rendering import ROOT, Refused, Scenario

CHART = "charts/hapax"
GATEWAY = {"gateway.enabled": True, "upstream.bootstrap": "kafka:9092"}
PORT = "hapax-metrics"
NOTES = """
notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}
"""


def setUpModule():
    global workshop
    workshop = rendering.Workshop()
    unittest.addModuleCleanup(workshop.close)
    # helm template shows no notes; this shows them as a document of their own.
    shutil.copytree(workshop.chart(CHART), workshop.chart("notes"))
    (workshop.chart("notes") / "templates/notes.yaml").write_text(NOTES)


def flags(settings):
    """Values of a test as flags: as JSON, so that a text stays one."""
    return [part for key, value in settings.items() for part in ("--set-json", f"{key}={json.dumps(value)}")]


def render(settings=None, values=None):
    return workshop.render(Scenario(CHART, values), *flags(settings or {}))


def gateway(settings=None):
    return render({**GATEWAY, **(settings or {})})


def notes(settings=None):
    shown = workshop.template(Scenario("notes", None), "--show-only", "templates/notes.yaml", *flags(settings or {}))
    return yaml.safe_load(shown)["notes"]


def scenario(name):
    return ROOT / CHART / "ci" / f"{name}-values.yaml"


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def only(documents, kind):
    found = of_kind(documents, kind)
    assert len(found) == 1, f"{len(found)} of {kind}"
    return found[0]


def pod(documents):
    return only(documents, "Deployment")["spec"]["template"]


def container(documents):
    return next(c for c in pod(documents)["spec"]["containers"] if c["name"] == "hapax")


def variables(documents):
    return {variable["name"]: variable.get("value") for variable in container(documents)["env"]}


def selects(selector, labels):
    """Whether a selector of Kubernetes takes an object with these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions", []):
        is_in = labels.get(expression["key"]) in expression.get("values", [])
        wanted = {"In": is_in, "NotIn": not is_in, "Exists": expression["key"] in labels}[expression["operator"]]
        if not wanted:
            return False
    return True


def with_port(spec, name):
    """Containers, init containers too, that have a port of this name."""
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return [c["name"] for c in containers if name in [p.get("name") for p in c.get("ports", [])]]


class TestGolden(unittest.TestCase):
    """What a change of the chart changes in what is installed. Injection has its own tests, and so have the packed files."""

    FOLDER = Path(__file__).parent / "golden" / "hapax"
    SCENARIOS = ("gateway-minimal", "gateway-full", "gateway-loadbalancer", "gateway-nodeport", "tls-sasl", "existing-config", "overrides", "monitoring")

    def golden(self, name):
        """The objects in the order of their names, without the texts that are packed."""
        documents = render(values=scenario(name))
        for document in documents:
            if document["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "dashboard" and "data" in document:
                document["data"] = {key: "…" for key in document["data"]}
            if document["kind"] == "PrometheusRule":
                document["spec"] = [rule.get("alert", rule.get("record")) for group in document["spec"]["groups"] for rule in group["rules"]]
        documents.sort(key=lambda document: (document["kind"], document["metadata"]["name"]))
        return yaml.safe_dump_all(documents, sort_keys=True, width=200, allow_unicode=True)

    def test_every_object_is_as_it_was(self):
        for name in self.SCENARIOS:
            with self.subTest(name):
                path = self.FOLDER / f"{name}.yaml"
                rendering.check_kept(self, path, self.golden(name))

    def test_no_golden_file_is_left_over(self):
        self.assertEqual({path.stem for path in self.FOLDER.glob("*.yaml")}, set(self.SCENARIOS))


class TestMonitors(unittest.TestCase):
    def test_the_pod_monitor_finds_one_container_in_every_pod_with_hapax(self):
        monitor = only(render({"metrics.podMonitor.enabled": True}), "PodMonitor")
        application = Scenario("tests/charts/app", None)
        forms = {
            "native": workshop.render(application),
            "plain": workshop.render(application, *flags({"hapax.native": False})),
            "gateway": gateway(),
        }
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        for form, documents in forms.items():
            [(metadata, spec)] = [pair for d in documents if d["kind"] == "Deployment" for pair in rendering.pod_templates(d)]
            with self.subTest(form):
                self.assertEqual(with_port(spec, endpoint["port"]), ["hapax"])
                self.assertTrue(selects(monitor["spec"]["selector"], metadata["labels"]))
                self.assertEqual(monitor["spec"]["namespaceSelector"], {"any": True})

    def test_the_service_monitor_finds_one_service_and_one_container(self):
        for values in (scenario("gateway-full"), scenario("gateway-minimal")):
            documents = render({"metrics.serviceMonitor.enabled": True}, values=values)
            monitor = only(documents, "ServiceMonitor")
            [endpoint] = monitor["spec"]["endpoints"]
            found = [s for s in of_kind(documents, "Service") if selects(monitor["spec"]["selector"], s["metadata"]["labels"])]
            [service] = found
            self.assertIn(service["metadata"]["namespace"], monitor["spec"]["namespaceSelector"]["matchNames"])
            [port] = [p for p in service["spec"]["ports"] if p["name"] == endpoint["port"]]
            template = pod(documents)
            self.assertTrue(selects({"matchLabels": service["spec"]["selector"]}, template["metadata"]["labels"]))
            self.assertEqual(with_port(template["spec"], port["targetPort"]), ["hapax"])

    def test_a_gateway_is_not_scraped_twice(self):
        documents = gateway({"metrics.podMonitor.enabled": True, "metrics.serviceMonitor.enabled": True})
        selector = only(documents, "PodMonitor")["spec"]["selector"]
        self.assertFalse(selects(selector, pod(documents)["metadata"]["labels"]))
        self.assertTrue(selects(selector, {"app": "shop"}))
        own = gateway({"metrics.podMonitor.enabled": True, "metrics.podMonitor.selector": {"matchLabels": {"a": "b"}}})
        self.assertEqual(only(own, "PodMonitor")["spec"]["selector"], {"matchLabels": {"a": "b"}})

    def test_every_setting_arrives(self):
        monitor = only(render(values=scenario("monitoring")), "PodMonitor")
        [endpoint] = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual(monitor["metadata"]["namespace"], "monitoring")
        self.assertEqual(monitor["metadata"]["labels"]["release"], "monitoring")
        self.assertEqual((endpoint["interval"], endpoint["scrapeTimeout"], endpoint["honorTimestamps"]), ("30s", "10s", False))
        self.assertEqual(monitor["spec"]["sampleLimit"], 5000)
        self.assertEqual([r["targetLabel"] for r in endpoint["relabelings"]], ["namespace", "pod", "container", "cluster"])
        self.assertEqual(endpoint["metricRelabelings"][0]["action"], "drop")

    def test_a_label_of_the_target_hides_none_of_hapax(self):
        [endpoint] = only(render({"metrics.podMonitor.enabled": True}), "PodMonitor")["spec"]["podMetricsEndpoints"]
        readme = (ROOT / "README.md").read_text()
        rows = re.findall(r"^\| `hapax_\w+` \| ([^|]*) \|", readme, re.M)
        own = {label.strip() for row in rows for label in row.split(",")} - {""}
        self.assertIn("topic", own)
        self.assertEqual(own & {relabeling["targetLabel"] for relabeling in endpoint["relabelings"]}, set())

    def test_a_service_monitor_without_a_gateway_is_an_error(self):
        with self.assertRaisesRegex(Refused, "there is no gateway for it"):
            render({"metrics.serviceMonitor.enabled": True})


class TestRules(unittest.TestCase):
    def rules(self, settings=None, values=None):
        settings = {"prometheusRule.enabled": True, **(settings or {})}
        return only(render(settings, values), "PrometheusRule")["spec"]["groups"]

    def packed(self):
        files = [ROOT / "config/prometheus" / name for name in ("rules.yaml", "alerts.yaml")]
        return [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]

    def alerts(self, groups):
        return [rule for group in groups for rule in group["rules"] if "alert" in rule]

    def test_what_is_packed_is_what_config_has(self):
        done = subprocess.run([sys.executable, "pack.py", "--check"], cwd=ROOT / "tests/charts", capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_without_values_they_are_the_files_word_for_word(self):
        self.assertEqual(self.rules(), self.packed())
        texts = [text for alert in self.alerts(self.rules()) for text in alert["annotations"].values()]
        self.assertTrue(any("{{ $labels.job }}" in text for text in texts), "Prometheus's own templates are still there")

    def test_each_setting_changes_what_it_names_and_nothing_else(self):
        before = self.alerts(self.packed())
        after = self.alerts(self.rules(values=scenario("monitoring")))
        self.assertEqual([a["alert"] for a in after], [a["alert"] for a in before if a["alert"] != "HapaxLabelOverflow"])
        by_name = {f"{a['alert']}.{a['labels']['severity']}": a for a in after}
        self.assertIn("> 0.1", by_name["HapaxDuplicateRatioHigh.warning"]["expr"])
        burn = by_name["HapaxErrorBudgetBurn.critical"]["expr"]
        self.assertEqual(re.findall(r"> ([0-9.]+)", burn), ["0.02", "0.02"], "both windows")
        self.assertIn("> 0.006", by_name["HapaxErrorBudgetBurn.warning"]["expr"])
        self.assertEqual(by_name["HapaxUpstreamUnreachable.critical"]["for"], "5m")
        self.assertIn("HapaxOverheadHigh.warning", by_name)
        changed = {"HapaxDuplicateRatioHigh", "HapaxErrorBudgetBurn", "HapaxLabelOverflow"}
        self.assertEqual(
            [a["expr"] for a in after if a["alert"] not in changed],
            [a["expr"] for a in before if a["alert"] not in changed],
        )
        for alert in after:
            self.assertEqual(alert["labels"]["team"], "kafka")
            self.assertEqual(alert["annotations"]["runbook_url"], f"https://runbooks.example.com/hapax/{alert['alert']}.md")
            self.assertTrue(alert["annotations"]["dashboard"].startswith("https://grafana.example.com/d/hapax"))

    def test_every_alert_has_a_threshold_that_can_be_set(self):
        names = {alert["alert"] for alert in self.alerts(self.packed())}
        for alert in self.alerts(self.rules({"prometheusRule.thresholds": dict.fromkeys(names, 0.125)})):
            with self.subTest(alert["alert"]):
                self.assertRegex(alert["expr"].strip(), r"[=<>] 0\.125$")

    def test_alerts_that_do_not_exist_are_errors(self):
        for key, value in {"disabled": ["HapaxGap"], "thresholds.HapaxGap": 1, "for.HapaxGap": "1m", "severities.HapaxGap": "info"}.items():
            with self.subTest(key), self.assertRaisesRegex(Refused, "HapaxGap, which is no alert of hapax"):
                self.rules({f"prometheusRule.{key}": value})


class TestDashboards(unittest.TestCase):
    def test_each_dashboard_arrives_as_it_is(self):
        documents = render({"grafanaDashboard.enabled": True})
        files = {path.name: path for path in (ROOT / "config/grafana").glob("*.json")}
        found = {name: text for d in of_kind(documents, "ConfigMap") for name, text in d["data"].items()}
        self.assertEqual({name: json.loads(text) for name, text in found.items()}, {n: json.loads(p.read_text()) for n, p in files.items()})
        self.assertTrue(all(d["metadata"]["labels"]["grafana_dashboard"] == "1" for d in documents))

    def test_the_operator_is_led_to_each(self):
        documents = render(values=scenario("monitoring"))
        maps = {d["metadata"]["name"]: d for d in of_kind(documents, "ConfigMap")}
        objects = of_kind(documents, "GrafanaDashboard")
        self.assertEqual(len(objects), len(maps))
        for dashboard in objects:
            reference = dashboard["spec"]["configMapRef"]
            self.assertIn(reference["key"], maps[reference["name"]]["data"])
            self.assertEqual(dashboard["spec"]["folder"], "Kafka")
            self.assertEqual(maps[reference["name"]]["metadata"]["annotations"]["grafana_folder"], "Kafka")
        without = render({"grafanaDashboard.operator.enabled": True})
        self.assertFalse(any("grafana_dashboard" in d["metadata"]["labels"] for d in without), "one way at a time")


class TestPorts(unittest.TestCase):
    """A client is told a host and a port, and has to come to that broker whatever Pod answers."""

    def told(self, documents):
        """(host, port) of each slot, as hapax tells clients."""
        environment = variables(documents)
        first, last = map(int, environment["HAPAX_BROKER_PORTS"].split("-"))
        host = environment["HAPAX_LISTEN_ADVERTISED_HOST"]
        return [(host.replace("{slot}", str(slot)), first + slot) for slot in range(last - first + 1)]

    def services(self, documents):
        """(name in the cluster, port) that leads to a port of the same number of the Pods."""
        found = []
        for service in of_kind(documents, "Service"):
            name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc.cluster.local"
            self.assertTrue(selects({"matchLabels": service["spec"]["selector"]}, pod(documents)["metadata"]["labels"]))
            found += [(name, p["port"]) for p in service["spec"]["ports"] if p["targetPort"] == p["port"]]
        return found

    def test_every_address_that_clients_are_told_is_one_of_a_service(self):
        for brokers in (1, 6, 120, [7], [101, 102, 70000]):
            for per_broker in (True, False):
                if brokers == 120 and not per_broker:
                    continue
                with self.subTest(brokers=brokers, per_broker=per_broker):
                    documents = gateway({"gateway.brokers": brokers, "gateway.service.perBroker": per_broker})
                    told = self.told(documents)
                    services = self.services(documents)
                    count = brokers if isinstance(brokers, int) else len(brokers)
                    self.assertEqual(len(set(told)), count)
                    self.assertEqual(sorted(told), sorted(s for s in services if s[1] != 19092))
                    [bootstrap] = [name for name, port in services if port == 19092]
                    self.assertEqual(bootstrap, f"shop-hapax-gateway.{rendering.NAMESPACE}.svc.cluster.local")
                    names = [d["metadata"]["name"] for d in of_kind(documents, "Service")]
                    self.assertEqual(len(names), 2 + (count if per_broker else 0))

    def test_named_brokers_have_their_ports_in_order_and_replicas_refuse_what_they_cannot_agree_on(self):
        environment = variables(gateway({"gateway.brokers": [101, 70000, 5]}))
        slots = dict(pair.split("=") for pair in environment["HAPAX_LISTEN_NODE_SLOTS"].split(","))
        self.assertEqual(slots, {"101": "19093", "70000": "19094", "5": "19095"})
        self.assertEqual(environment["HAPAX_LISTEN_SLOT_COLLISIONS"], "refuse")
        self.assertNotIn("HAPAX_LISTEN_NODE_SLOTS", variables(gateway()))

    def test_node_ports_are_the_ports_that_clients_are_told(self):
        documents = render(values=scenario("gateway-nodeport"))
        ports = [p for d in of_kind(documents, "Service") if d["spec"]["type"] == "NodePort" for p in d["spec"]["ports"]]
        self.assertEqual([p["nodePort"] for p in ports], [p["port"] for p in ports])
        self.assertLessEqual({port for _, port in self.told(documents)}, {p["nodePort"] for p in ports})

    def test_no_service_for_clients_shows_the_admin_port(self):
        for name in ("gateway-loadbalancer", "gateway-nodeport", "gateway-full"):
            for service in of_kind(render(values=scenario(name)), "Service"):
                ports = [p["port"] for p in service["spec"]["ports"]]
                self.assertEqual(9180 in ports, service["spec"].get("clusterIP") == "None", service["metadata"]["name"])

    def test_load_balancers_have_the_names_that_clients_are_told(self):
        documents = render(values=scenario("gateway-loadbalancer"))
        key = "external-dns.alpha.kubernetes.io/hostname"
        named = {d["metadata"]["annotations"][key]: d for d in of_kind(documents, "Service") if key in d["metadata"].get("annotations", {})}
        self.assertEqual(set(named), {host for host, _ in self.told(documents)})
        for host, port in self.told(documents):
            self.assertEqual([p["port"] for p in named[host]["spec"]["ports"]], [port])

    def test_a_client_stays_at_one_pod(self):
        for service in of_kind(gateway(), "Service"):
            if service["spec"].get("clusterIP") != "None":
                self.assertEqual(service["spec"]["sessionAffinity"], "ClientIP")
                self.assertEqual(service["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800)

    def test_names_stay_within_what_kubernetes_allows(self):
        documents = gateway({"fullnameOverride": "n" * 63, "gateway.brokers": 500, "metrics.podMonitor.enabled": True})
        self.assertLessEqual(max(len(d["metadata"]["name"]) for d in documents), 63)
        services = {d["metadata"]["name"] for d in of_kind(documents, "Service")}
        self.assertEqual(len(services), 502, "none of them was cut down to the name of another")

    def test_what_cannot_work_is_told(self):
        for settings, said in (
            ({"gateway.service.type": "LoadBalancer"}, "set gateway.advertisedHost"),
            ({"gateway.service.type": "LoadBalancer", "gateway.advertisedHost": "a.example"}, "write {slot} in it"),
            ({"gateway.service.type": "NodePort", "gateway.advertisedHost": "a.example"}, "within 30000 to 32767"),
            ({"gateway.ports.bootstrap": 19095}, "one of the ports for brokers"),
            ({"admin.listen": "[::]:19093"}, "one of the ports for brokers"),
            ({"admin.listen": "[::]:19092"}, "both have port 19092"),
            ({"admin.listen": "127.0.0.1:9180"}, "come to the Pod's address"),
            ({"gateway.ports.brokers": 65534}, "the last port there is"),
            ({"gateway.brokers": 100, "gateway.service.perBroker": False}, "do not fit into one Service"),
            ({"config.listen.nodeSlots": {"1": 19093}}, "set gateway.ports"),
            ({"config.listen.bootstrap": "0.0.0.0:1"}, "set gateway.ports"),
            ({"config.upstream.sasl.mechanism": "PLAIN"}, "config.upstream.sasl.mechanism has a place of its own"),
            ({"gateway.bindAddress": "::"}, "bindAddress"),
            ({"config.drain.timeout": "1m"}, "config.drain.timeout has a place of its own"),
            ({"upstream.bootstrap": []}, "upstream.bootstrap is empty"),
            ({"upstream.sasl.mechanism": "PLAIN"}, "let clients prove who they are"),
            ({"upstream.tls": {"enabled": True, "existingSecret": "a", "certKey": "b", "keyKey": "c"}}, "let clients prove who they are"),
            ({"gateway.preStopSleepSeconds": 30}, "raise drain.timeout"),
            ({"drain.minDelay": "25s"}, "raise drain.timeout"),
            ({"gateway.autoscaling.enabled": True, "gateway.autoscaling.targetCPUUtilizationPercentage": 0}, "every target is 0"),
            ({"gateway.autoscaling.enabled": True, "gateway.autoscaling.maxReplicas": 1}, "less than the fewest"),
        ):  # fmt: skip
            with self.subTest(settings), self.assertRaisesRegex(Refused, re.escape(said)):
                gateway(settings)


class TestPod(unittest.TestCase):
    def test_the_grace_period_follows_the_one_drain_timeout(self):
        for timeout, seconds in (("25s", 30), ("2m", 125), ("1h", 3605), ("1500ms", 7)):
            documents = gateway({"drain.timeout": timeout, "gateway.preStopSleepSeconds": 0})
            self.assertEqual(pod(documents)["spec"]["terminationGracePeriodSeconds"], seconds)
            self.assertEqual(variables(documents)["HAPAX_DRAIN_TIMEOUT"], timeout)

    def test_the_end_of_a_pod_is_that_of_a_gateway(self):
        environment = variables(gateway())
        self.assertEqual((environment["HAPAX_DRAIN_UNTIL"], environment["HAPAX_DRAIN_MIN_DELAY"]), ("requests", "5s"))
        self.assertEqual(variables(gateway({"gateway.preStopSleepSeconds": 9}))["HAPAX_DRAIN_MIN_DELAY"], "9s")
        self.assertEqual(variables(gateway({"drain.minDelay": "7s"}))["HAPAX_DRAIN_MIN_DELAY"], "7s")
        strategy = only(gateway(), "Deployment")["spec"]["strategy"]
        self.assertEqual(strategy["rollingUpdate"], {"maxSurge": 1, "maxUnavailable": 0})

    def test_false_zero_and_nothing_are_taken(self):
        documents = render(values=scenario("overrides"))
        deployment = only(documents, "Deployment")["spec"]
        spec = deployment["template"]["spec"]
        own = container(documents)
        self.assertEqual((deployment["replicas"], deployment["minReadySeconds"], deployment["revisionHistoryLimit"]), (0, 0, 0))
        self.assertEqual(deployment["strategy"], {"type": "Recreate"})
        self.assertEqual(own["securityContext"]["readOnlyRootFilesystem"], False)
        self.assertEqual((own["securityContext"]["runAsUser"], own["securityContext"]["runAsGroup"]), (1000, 0))
        self.assertEqual(own["securityContext"]["capabilities"], {"drop": ["ALL"]}, "what is not named stays")
        self.assertEqual(own["livenessProbe"]["initialDelaySeconds"], 0)
        self.assertNotIn("startupProbe", own)
        self.assertNotIn("readinessProbe", own)
        self.assertNotIn("resources", own)
        self.assertNotIn("fsGroup", spec["securityContext"])
        self.assertNotIn("topologySpreadConstraints", spec)
        self.assertEqual(variables(documents)["HAPAX_DRAIN_MIN_DELAY"], "0s")
        self.assertEqual({d["kind"] for d in documents}, {"ConfigMap", "Deployment", "Service"})

    def test_a_security_context_of_the_user_wins_over_the_chart(self):
        own = container(gateway({"gateway.securityContext.runAsUser": 0, "gateway.securityContext.runAsNonRoot": False}))
        self.assertEqual((own["securityContext"]["runAsUser"], own["securityContext"]["runAsNonRoot"]), (0, False))

    def test_services_of_the_namespace_put_nothing_into_the_environment(self):
        for name in ("gateway-minimal", "gateway-full", "tls-sasl", "existing-config"):
            for document in render(values=scenario(name)):
                for _, spec in rendering.pod_templates(document):
                    self.assertIs(spec["enableServiceLinks"], False)
                    self.assertIs(spec["automountServiceAccountToken"], False)

    def test_probes_ask_the_three_questions(self):
        own = container(gateway())
        paths = {kind: own[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        expected = {"startup": "/startupz", "liveness": "/livez", "readiness": "/readyz"}
        self.assertEqual(paths, {kind: {"path": path, "port": PORT} for kind, path in expected.items()})

    def test_everything_that_was_asked_for_is_there(self):
        documents = render(values=scenario("gateway-full"))
        template = pod(documents)
        spec = template["spec"]
        self.assertEqual(container(documents)["image"], "registry.example.com/hapax-kafka/hapax@sha256:" + "0" * 64)
        self.assertEqual(spec["imagePullSecrets"], [{"name": "registry"}, {"name": "other"}])
        self.assertEqual(template["metadata"]["annotations"]["example.com/two"], "2")
        self.assertEqual(template["metadata"]["labels"]["example.com/three"], "3")
        self.assertEqual(container(documents)["args"], ["run", "--log-level=debug"])
        self.assertEqual(container(documents)["terminationMessagePolicy"], "File")
        self.assertEqual(variables(documents)["HAPAX_WORKERS"], "2")
        self.assertEqual(spec["hostAliases"][0]["ip"], "192.0.2.1")
        self.assertIn({"name": "scratch", "emptyDir": {}}, spec["volumes"])
        for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "topologySpreadConstraints"):
            self.assertTrue(spec[key], key)
        for constraint in spec["topologySpreadConstraints"]:
            self.assertTrue(selects(constraint["labelSelector"], template["metadata"]["labels"]))
        for document in documents:
            if document["metadata"]["name"] not in ("shop-extra", "shop-text"):
                self.assertEqual(document["metadata"]["labels"]["team"], "payments", document["kind"])
        extra = next(d for d in documents if d["metadata"]["name"] == "shop-extra")
        self.assertEqual(extra["data"], {"bootstrap": "19092"})

    def test_secrets_are_files_and_no_values(self):
        documents = render(values=scenario("tls-sasl"))
        [volume] = pod(documents)["spec"]["volumes"]
        secrets = {source["secret"]["name"] for source in volume["projected"]["sources"] if "secret" in source}
        self.assertEqual(secrets, {"kafka-ca", "kafka-user", "hapax-tls", "hapax-users"})
        paths = {item["path"] for source in volume["projected"]["sources"] for item in next(iter(source.values()))["items"]}
        files = {value.removeprefix("/etc/hapax/") for key, value in variables(documents).items() if key.endswith("_FILE")}
        self.assertLessEqual(files, paths)
        self.assertEqual(len(files), 9)


class TestConfiguration(unittest.TestCase):
    def changed(self, config):
        """Which parts of the release a change of config changes: the Pods, the ConfigMap."""
        before, after = gateway({"config": {"sequence": {"ttl": "5m", "mode": "absorb"}}}), gateway({"config": config})
        of_file = [only(documents, "ConfigMap")["data"] for documents in (before, after)]
        return pod(before) != pod(after), of_file[0] != of_file[1]

    def test_only_what_needs_a_restart_rolls_the_pods(self):
        self.assertEqual(self.changed({"sequence": {"ttl": "1m", "mode": "absorb"}}), (False, True))
        self.assertEqual(self.changed({"sequence": {"ttl": "5m", "mode": "absorb"}, "log": {"level": "debug"}}), (False, True))
        self.assertEqual(self.changed({"sequence": {"ttl": "5m", "mode": "observe"}}), (True, True))
        self.assertEqual(self.changed({"sequence": {"mode": "absorb", "ttl": "5m"}}), (False, False))

    def test_a_change_shows_at_the_deployment(self):
        checksums = {
            only(gateway({"config": {"log": {"level": level}}}), "Deployment")["metadata"]["annotations"]["hapax.io/checksum"]
            for level in ("info", "debug")
        }
        self.assertEqual(len(checksums), 2)

    def test_hapax_takes_what_the_chart_gives_it(self):
        for values in sorted((ROOT / CHART / "ci").glob("*-values.yaml")):
            documents = render(values=values)
            if not of_kind(documents, "Deployment"):
                continue
            with self.subTest(values.name), tempfile.TemporaryDirectory() as folder:
                environment = {name: value for name, value in variables(documents).items() if value is not None}
                file = Path(folder) / "hapax.yaml"
                maps = {d["metadata"]["name"]: d.get("data") for d in of_kind(documents, "ConfigMap")}
                [source] = [s["configMap"] for v in pod(documents)["spec"]["volumes"] for s in v.get("projected", {}).get("sources", []) if "configMap" in s]
                # A ConfigMap of the user's own has whatever it has.
                file.write_text(maps.get(source["name"], {"hapax.yaml": "upstream: {bootstrap: [kafka:9092]}"})["hapax.yaml"])
                environment["HAPAX_CONFIG"] = str(file)
                arguments = container(documents)["args"][1:]
                done = subprocess.run([generate.hapax(), "config", "print", *arguments], env=environment, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                printed = yaml.safe_load(done.stdout)
                self.assertEqual(printed["listen"]["slotCollisions"], "refuse")
                self.assertEqual(printed["drain"]["until"], "requests")
                if values.name.startswith("gateway-full"):
                    self.assertEqual(printed["sequence"]["windowBatches"], 32)
                    self.assertEqual(printed["policies"][0]["topics"], ["payments.*"])

    def test_an_existing_config_map_takes_the_place_of_ours(self):
        documents = render(values=scenario("existing-config"))
        self.assertEqual(of_kind(documents, "ConfigMap"), [])
        [volume] = pod(documents)["spec"]["volumes"]
        self.assertEqual(volume["projected"]["sources"][0]["configMap"]["name"], "my-hapax")
        environment = variables(documents)
        self.assertEqual(environment["HAPAX_LISTEN_NODE_SLOTS"], "1=19093,2=19094,3=19095")
        self.assertEqual(environment["HAPAX_LOG_FORMAT"], "json")

    def test_an_upgrade_keeps_names_and_selectors(self):
        before, after = gateway(), gateway({"image.tag": "9.9.9", "gateway.podLabels": {"a": "b"}, "commonLabels": {"c": "d"}})
        for kind in ("Deployment", "Service", "PodDisruptionBudget", "ConfigMap", "ServiceAccount"):
            one, other = of_kind(before, kind), of_kind(after, kind)
            self.assertEqual([d["metadata"]["name"] for d in one], [d["metadata"]["name"] for d in other])
            self.assertEqual([d.get("spec", {}).get("selector") for d in one], [d.get("spec", {}).get("selector") for d in other])


class TestScaling(unittest.TestCase):
    def test_the_autoscaler_alone_says_how_many(self):
        documents = gateway({"gateway.autoscaling.enabled": True, "gateway.autoscaling.targetConnections": 500})
        self.assertNotIn("replicas", only(documents, "Deployment")["spec"])
        scaler = only(documents, "HorizontalPodAutoscaler")["spec"]
        self.assertEqual(scaler["scaleTargetRef"]["name"], only(documents, "Deployment")["metadata"]["name"])
        pods, cpu = scaler["metrics"]
        self.assertEqual(pods["pods"], {"metric": {"name": "hapax_client_connections"}, "target": {"type": "AverageValue", "averageValue": "500"}})
        self.assertEqual(cpu["resource"]["target"]["averageUtilization"], 70)
        self.assertIn("cpu", container(documents)["resources"]["requests"], "a share of nothing is no target")

    def test_a_budget_protects_more_than_one_pod_and_keeps_no_node(self):
        budget = only(gateway(), "PodDisruptionBudget")["spec"]
        self.assertEqual(budget["maxUnavailable"], 1)
        self.assertTrue(selects(budget["selector"], pod(gateway())["metadata"]["labels"]))
        self.assertEqual(of_kind(gateway({"gateway.replicaCount": 1}), "PodDisruptionBudget"), [])
        other = only(gateway({"gateway.pdb.minAvailable": 0}), "PodDisruptionBudget")["spec"]
        self.assertEqual((other["minAvailable"], "maxUnavailable" in other), (0, False))


class TestNetworkPolicy(unittest.TestCase):
    def allowed(self, rules):
        """(port, end) of each rule, with the peers."""
        return {(p["port"], p.get("endPort", p["port"])): rule.get("from", rule.get("to")) for rule in rules for p in rule["ports"]}

    def test_clients_prometheus_dns_and_brokers_get_through(self):
        documents = gateway({"networkPolicy.enabled": True})
        policy = only(documents, "NetworkPolicy")["spec"]
        self.assertTrue(selects(policy["podSelector"], pod(documents)["metadata"]["labels"]))
        ingress, egress = self.allowed(policy["ingress"]), self.allowed(policy["egress"])
        self.assertEqual(ingress, {(19092, 19092): None, (19093, 19098): None, (9180, 9180): [{"namespaceSelector": {}}]})
        self.assertEqual(egress, {(53, 53): None, (9092, 9092): None})
        self.assertEqual({p["protocol"] for p in policy["egress"][0]["ports"]}, {"UDP", "TCP"})

    def test_brokers_whose_ports_are_not_known_have_to_be_named(self):
        settings = {"gateway.enabled": True, "existingConfigMap": "ours", "networkPolicy.enabled": True}
        with self.assertRaisesRegex(Refused, "set networkPolicy.brokerPorts"):
            render(settings)
        self.assertTrue(render({**settings, "networkPolicy.brokerPorts": [9092]}))

    def test_peers_can_be_named_and_the_test_is_one(self):
        documents = render(values=scenario("gateway-full"))
        policy = only(documents, "NetworkPolicy")["spec"]
        ingress, egress = self.allowed(policy["ingress"]), self.allowed(policy["egress"])
        test = only(documents, "Pod")["metadata"]["labels"]
        for ports in ((19092, 19092), (19093, 19095), (9180, 9180)):
            self.assertEqual(len(ingress[ports]), 2)
            self.assertTrue(any("podSelector" in peer and selects(peer["podSelector"], test) for peer in ingress[ports]))
        self.assertLessEqual({(9092, 9092), (9093, 9093), (9094, 9094), (443, 443)}, set(egress))
        self.assertEqual(egress[(9094, 9094)], [{"ipBlock": {"cidr": "10.0.0.0/8"}}])


class TestSettingsBesideDefaults(unittest.TestCase):
    """Helm merges maps of the user's into those of the chart, where two can exclude each other."""

    def test_a_volume_for_the_state_is_the_only_one(self):
        claim = {"persistentVolumeClaim": {"claimName": "state"}}
        documents = gateway({"gateway.state.enabled": True, "gateway.state.volume": claim})
        volumes = {volume.pop("name"): volume for volume in pod(documents)["spec"]["volumes"]}
        self.assertEqual(volumes["hapax-state"], claim)

    def test_named_namespaces_are_all_that_is_scraped(self):
        monitor = only(render({"metrics.podMonitor.enabled": True, "metrics.podMonitor.namespaceSelector.matchNames": ["orders"]}), "PodMonitor")
        self.assertEqual(monitor["spec"]["namespaceSelector"], {"matchNames": ["orders"]})

    def test_pods_that_are_recreated_do_not_roll(self):
        deployment = only(gateway({"gateway.updateStrategy.type": "Recreate"}), "Deployment")
        self.assertEqual(deployment["spec"]["strategy"], {"type": "Recreate"})

    def test_named_instances_of_grafana_are_all_that_get_dashboards(self):
        settings = {"grafanaDashboard.operator.enabled": True}
        for given, selector in ((None, {"dashboards": "grafana"}), ("ours", {"app": "ours"})):
            if given:
                settings["grafanaDashboard.operator.instanceSelector.matchLabels"] = {"app": given}
            for dashboard in of_kind(render(settings), "GrafanaDashboard"):
                self.assertEqual(dashboard["spec"]["instanceSelector"], {"matchLabels": selector})

    def test_a_budget_always_has_a_bound(self):
        for settings in ({"gateway.pdb.minAvailable": None}, {"gateway.pdb.maxUnavailable": ""}):
            budget = only(gateway(settings), "PodDisruptionBudget")["spec"]
            self.assertEqual((budget["maxUnavailable"], "minAvailable" in budget), (1, False))

    def test_an_annotation_of_the_user_takes_the_place_of_ours(self):
        key = "kubectl.kubernetes.io/default-container"
        annotations = workshop.template(Scenario(CHART, None), *flags({**GATEWAY, "gateway.podAnnotations": {key: "other"}}))
        self.assertEqual(annotations.count(f"{key}:"), 1)
        self.assertEqual(pod(gateway({"gateway.podAnnotations": {key: "other"}}))["metadata"]["annotations"][key], "other")

    def test_what_is_taken_away_is_not_missed(self):
        self.assertTrue(gateway({"config": None, "global": None}))


class TestNames(unittest.TestCase):
    def test_what_yaml_takes_for_something_else_stays_a_text(self):
        settings = {**GATEWAY, "metrics.serviceMonitor.enabled": True, "nameOverride": "123"}
        documents = workshop.render(Scenario(CHART, None), "--namespace=no", *flags(settings))
        self.assertEqual({document["metadata"]["namespace"] for document in documents}, {"no"})
        self.assertEqual(only(documents, "ServiceMonitor")["spec"]["namespaceSelector"], {"matchNames": ["no"]})
        self.assertEqual(only(documents, "Deployment")["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"], "123")

    def test_a_tag_with_a_digest_is_no_label(self):
        documents = gateway({"image.tag": "0.1.0@sha256:" + 64 * "a"})
        versions = {document["metadata"]["labels"]["app.kubernetes.io/version"] for document in documents}
        self.assertEqual(versions, {"0.1.0"})

    def test_a_release_may_have_dots_and_services_may_not(self):
        documents = workshop.render(Scenario(CHART, None), *flags(GATEWAY), release="team.eu")
        names = [document["metadata"]["name"] for document in of_kind(documents, "Service")]
        self.assertTrue(names)
        for name in names:
            self.assertRegex(name, r"^team-eu-hapax-gateway[-a-z0-9]*$")


class TestAdmin(unittest.TestCase):
    def test_commands_in_the_container_find_another_admin_port(self):
        self.assertEqual(variables(gateway({"admin.listen": "[::]:9999"}))["HAPAX_ADMIN"], "127.0.0.1:9999")
        self.assertNotIn("HAPAX_ADMIN", variables(gateway()))

    def test_the_logs_of_the_test_are_those_of_one_container(self):
        for settings in ({}, {"gateway.service.type": "LoadBalancer", "gateway.advertisedHost": "{slot}.example.com"}):
            test = only(gateway(settings), "Pod")
            self.assertEqual(len(test["spec"]["containers"]), 1)
            self.assertNotIn("hook-succeeded", test["metadata"]["annotations"]["helm.sh/hook-delete-policy"])


class TestChart(unittest.TestCase):
    def test_what_the_chart_says_of_itself_is_so(self):
        chart = yaml.safe_load((ROOT / CHART / "Chart.yaml").read_text())
        [image] = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
        self.assertEqual(image["image"], container(gateway())["image"])
        [library] = chart["dependencies"]
        self.assertEqual(library["version"], yaml.safe_load((ROOT / "charts/hapax-sidecar/Chart.yaml").read_text())["version"])
        self.assertIn(f'\nversion = "{chart["appVersion"]}"\n', (ROOT / "Cargo.toml").read_text())
        for change in yaml.safe_load(chart["annotations"]["artifacthub.io/changes"]):
            self.assertIn(change["kind"], ("added", "changed", "deprecated", "removed", "fixed", "security"))

    def test_credentials_of_the_gateway_can_be_left_open_on_purpose(self):
        documents = gateway({"upstream.sasl.mechanism": "PLAIN", "upstream.sasl.existingSecret": "kafka-user", "config.allowOpenListener": True})
        self.assertIn("allowOpenListener: true", only(documents, "ConfigMap")["data"]["hapax.yaml"])


class TestNotes(unittest.TestCase):
    def test_nothing_on_says_what_to_enable(self):
        text = notes()
        for flag in ("inject.enabled=true", "gateway.enabled=true", "metrics.podMonitor.enabled=true"):
            self.assertIn(flag, text)
        self.assertEqual(render(), [], "and nothing is installed")

    def test_every_flag_that_they_name_is_a_value(self):
        values = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
        named = re.findall(r"--set '?([A-Za-z.]+)=", notes() + notes({"metrics.podMonitor.enabled": True, "prometheusRule.enabled": True}))
        self.assertGreater(len(named), 6)
        for path in named:
            here = values
            for part in path.removesuffix(".release").split("."):
                self.assertIn(part, here, path)
                here = here[part]

    def test_a_gateway_says_where_clients_connect_and_what_replicas_forget(self):
        text = notes(GATEWAY)
        self.assertIn(f"bootstrap.servers=shop-hapax-gateway.{rendering.NAMESPACE}.svc.cluster.local:19092", text)
        self.assertIn("helm test shop", text)
        self.assertIn("never answered by guess", text)
        self.assertNotIn("never answered by guess", notes({**GATEWAY, "gateway.replicaCount": 1}))
        connections = {**GATEWAY, "gateway.autoscaling.enabled": True, "gateway.autoscaling.targetConnections": 5}
        self.assertIn("custom.metrics.k8s.io", notes(connections))
        balanced = {**GATEWAY, "gateway.service.type": "LoadBalancer", "gateway.advertisedHost": "b-{slot}.example.com", "gateway.brokers": 2}
        self.assertIn("b-1.example.com -> shop-hapax-gateway-broker-1", notes(balanced))

    def test_a_sidecar_has_no_replicas_of_its_own(self):
        text = notes({"inject.enabled": True, "upstream.bootstrap": ["kafka:9092"]})
        self.assertIn("mean nothing to them", text)

    def test_a_monitor_without_a_label_says_how_it_is_found(self):
        self.assertIn("additionalLabels.release", notes({"metrics.podMonitor.enabled": True}))
        labelled = {"metrics.podMonitor.enabled": True, "metrics.podMonitor.additionalLabels": {"release": "a"}}
        self.assertNotIn("additionalLabels.release", notes(labelled))


class TestSchema(unittest.TestCase):
    def test_typing_errors_and_wrong_types_are_refused(self):
        for settings, named in (
            ({"gatway": {"enabled": True}}, "gatway"),
            ({"gateway.replicas": 2}, "replicas"),
            ({"gateway.service.typ": "LoadBalancer"}, "typ"),
            ({"gateway.service.type": "Loadbalancer"}, "type"),
            ({"gateway.brokers": 0}, "brokers"),
            ({"gateway.brokers": []}, "brokers"),
            ({"gateway.brokers": [1, 1]}, "brokers"),
            ({"gateway.brokers": ["kafka-0"]}, "brokers"),
            ({"gateway.replicaCount": "two"}, "replicaCount"),
            ({"gateway.enabled": "yes"}, "enabled"),
            ({"gateway.podAnnotations": {"prometheus.io/scrape": False}}, "prometheus.io"),
            ({"upstream.bootstrap": ["kafka"]}, "bootstrap"),
            ({"upstream.brokers": ["kafka:9092"]}, "brokers"),
            ({"config": {"sequence": {"mode": "absrob"}}}, "mode"),
            ({"config": {"sequnce": {}}}, "sequnce"),
            ({"drain.timeout": "soon"}, "timeout"),
            ({"metrics.podMonitor.labels": {}}, "labels"),
            ({"prometheusRule.thresholds": {"HapaxSequenceGaps": "many"}}, "thresholds"),
            ({"grafanaDashboard.labelValue": 1}, "labelValue"),
            ({"tests.enabled": "false"}, "enabled"),
            ({"image.pullPolicy": "always"}, "pullPolicy"),
        ):  # fmt: skip
            with self.subTest(settings), self.assertRaisesRegex(Refused, re.escape(named)):
                gateway(settings)

    def test_objects_of_kubernetes_pass_untouched(self):
        affinity = {"nodeAffinity": {"newInSomeVersion": {"a": [1, False, None]}}}
        probe = {"httpGet": {"path": "/readyz", "port": 1}, "newInSomeVersion": 0}
        documents = gateway({"gateway.affinity": affinity, "gateway.probes.readiness": probe})
        self.assertEqual(pod(documents)["spec"]["affinity"], affinity)
        self.assertEqual(container(documents)["readinessProbe"]["newInSomeVersion"], 0)
        self.assertEqual(container(documents)["readinessProbe"]["httpGet"], probe["httpGet"])


if __name__ == "__main__":
    unittest.main()
