"""hapax-sidecar inside an application's chart, tests/charts/app: what it renders, and what it refuses.

HAPAX_TESTS_WRITE=1 writes the golden files anew; look at what changed.
"""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

import generate
import rendering

APP = "tests/charts/app"
GOLDEN = Path(__file__).parent / "golden"
SHOWN = "hapax-sidecar"


class Case(rendering.Case):
    maxDiff = None

    def template(self, values, *arguments):
        """What the application renders with these values of hapax-sidecar."""
        return self.template_app({"hapax": values}, *arguments)

    def template_app(self, values, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(values, file)
            file.flush()
            return self.workshop.template(rendering.Scenario(APP, Path(file.name)), *arguments)

    def pod(self, values, *arguments):
        return pod_of(self.template(values, *arguments))

    def hapax(self, values, *arguments):
        return container_of(self.pod(values, *arguments))

    def refused(self, values, *said):
        with self.assertRaises(rendering.Refused) as refused:
            self.template(values)
        for text in said:
            self.assertIn(text, str(refused.exception))


def documents(text):
    return {document["kind"]: document for document in yaml.safe_load_all(text) if document}


def pod_of(text):
    found = documents(text)
    workload = found.get("Deployment") or found["Job"]
    return workload["spec"]["template"]


def container_of(pod, name="hapax"):
    """The one container of hapax, and where it was found."""
    every = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    [container] = [container for container in every if container["name"] == name]
    return container


def variables(container):
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names)), f"a variable twice: {names}"
    return {variable["name"]: variable["value"] for variable in container["env"]}


class Golden(Case):
    def test_every_scenario_renders_as_it_did(self):
        for scenario in rendering.scenarios(APP):
            if not scenario.values:
                continue
            with self.subTest(str(scenario)):
                path = GOLDEN / f"{scenario.values.name.removesuffix('-values.yaml')}.yaml"
                # Helm 4 leaves one more empty line between documents.
                rendered = "".join(line for line in self.workshop.template(scenario).splitlines(True) if line.strip())
                rendering.check_kept(self, path, rendered)

    def test_no_golden_file_is_left_over(self):
        scenarios = {scenario.values.name.removesuffix("-values.yaml") for scenario in rendering.scenarios(APP) if scenario.values}
        self.assertEqual({path.stem for path in GOLDEN.glob("*.yaml")}, scenarios)


class Version(unittest.TestCase):
    def test_the_chart_is_of_this_version_of_hapax(self):
        cargo = (rendering.ROOT / "Cargo.toml").read_text()
        [version] = [line.split('"')[1] for line in cargo.splitlines() if line.startswith("version =")]
        chart = rendering.ROOT / "charts" / SHOWN
        self.assertEqual(yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"], version)
        template = (chart / "templates" / "_container.tpl").read_text()
        self.assertIn(f'{{{{- define "hapax.version" -}}}}{version}{{{{- end -}}}}', template)


class Forms(Case):
    UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}}

    def test_a_native_sidecar_is_an_init_container_that_stays(self):
        pod = self.pod(self.UPSTREAM)
        [container] = pod["spec"]["initContainers"]
        self.assertEqual(container["restartPolicy"], "Always")
        self.assertEqual([container["name"] for container in pod["spec"]["containers"]], ["app"])

    def test_a_plain_one_stands_beside_the_application(self):
        pod = self.pod({**self.UPSTREAM, "native": False})
        self.assertNotIn("initContainers", pod["spec"])
        [_, container] = pod["spec"]["containers"]
        self.assertNotIn("restartPolicy", container)

    def test_without_it_nothing_of_it_is_there(self):
        text = self.template({"enabled": False, "configMap": {"create": True}, "injectEnv": {"name": "KAFKA"}})
        self.assertEqual(set(documents(text)), {"Deployment"})
        pod = pod_of(text)
        self.assertNotIn("annotations", pod["metadata"])
        self.assertFalse({"initContainers", "volumes"} & set(pod["spec"]))
        [app] = pod["spec"]["containers"]
        self.assertFalse(app["env"])

    def test_the_kubelet_asks_the_port_that_hapax_listens_on(self):
        for listen, port in [("[::]:9180", 9180), ("0.0.0.0:9999", 9999)]:
            container = self.hapax({**self.UPSTREAM, "admin": {"listen": listen}})
            self.assertEqual(variables(container)["HAPAX_ADMIN_LISTEN"], listen)
            ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
            self.assertEqual(ports, {"hapax-metrics": port})
            for probe, path in [("startupProbe", "/startupz"), ("livenessProbe", "/livez")]:
                self.assertEqual(container[probe]["httpGet"], {"path": path, "port": "hapax-metrics"})
            self.assertNotIn("readinessProbe", container)

    def test_on_loopback_hapax_asks_itself_and_shows_no_port(self):
        container = self.hapax({**self.UPSTREAM, "admin": {"listen": "127.0.0.1:29180"}, "probes": {"readiness": {"enabled": True}}})
        command = ["hapax", "wait", "--max=0", "--admin=127.0.0.1:29180"]
        for probe, more in [("startupProbe", []), ("livenessProbe", ["--live"]), ("readinessProbe", ["--ready"])]:
            self.assertEqual(container[probe]["exec"]["command"], [*command, *more])
            self.assertNotIn("httpGet", container[probe])
        self.assertNotIn("ports", container)

    def test_a_handler_of_the_user_takes_the_place_of_ours(self):
        probe = self.hapax({**self.UPSTREAM, "probes": {"liveness": {"tcpSocket": {"port": 19092}}}})["livenessProbe"]
        self.assertEqual(probe, {"tcpSocket": {"port": 19092}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3})

    def test_the_grace_period_follows_the_one_time(self):
        for timeout, seconds in [("25s", 30), ("2m", 125), ("300ms", 6), ("1h", 3605), ("0", 5), (0, 5)]:
            pod = self.pod({**self.UPSTREAM, "drain": {"timeout": timeout}})
            self.assertEqual(pod["spec"]["terminationGracePeriodSeconds"], seconds, timeout)
            self.assertEqual(variables(container_of(pod))["HAPAX_DRAIN_TIMEOUT"], str(timeout))

    def test_both_names_of_the_values_will_do(self):
        workshop = rendering.Workshop()
        self.addCleanup(workshop.close)
        described = workshop.chart(APP) / "Chart.yaml"
        described.write_text(described.read_text().replace("    alias: hapax\n", ""))
        rendering.helm("dependency", "update", workshop.chart(APP))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"hapax-sidecar": {"upstream": {"bootstrap": ["b:1"]}}}, file)
            file.flush()
            container = container_of(pod_of(workshop.template(rendering.Scenario(APP, Path(file.name)))))
        self.assertEqual(variables(container)["HAPAX_UPSTREAM"], "b:1")


class Wiring(Case):
    UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}, "injectEnv": {"name": "KAFKA_BOOTSTRAP_SERVERS"}}

    def env(self, env):
        pod = pod_of(self.template_app({"env": env, "hapax": self.UPSTREAM}))
        [app] = [container for container in pod["spec"]["containers"] if container["name"] == "app"]
        return app["env"]

    def test_the_application_is_told_where_hapax_is(self):
        self.assertEqual(self.env([]), [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": "127.0.0.1:19092"}])

    def test_a_variable_that_is_set_is_never_replaced(self):
        own = [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": "own:9092"}]
        self.assertEqual(self.env(own), own)
        named = [{"name": "KAFKA_BOOTSTRAP_SERVERS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
        self.assertEqual(self.env(named), named)


class Survival(Case):
    """Explicit false, 0 and empty are what the user wants."""

    UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}}

    def test_false_and_zero_of_the_security_context(self):
        context = self.hapax({**self.UPSTREAM, "securityContext": {"runAsUser": 0, "runAsNonRoot": False, "readOnlyRootFilesystem": False}})
        context = context["securityContext"]
        self.assertEqual(context["runAsUser"], 0)
        self.assertIs(context["runAsNonRoot"], False)
        self.assertIs(context["readOnlyRootFilesystem"], False)
        self.assertEqual(context["capabilities"], {"drop": ["ALL"]})

    def test_false_and_zero_of_a_patch_and_null_that_removes(self):
        context = {"runAsGroup": 0, "allowPrivilegeEscalation": False, "capabilities": None}
        patch = {"stdin": False, "securityContext": context, "startupProbe": {"failureThreshold": 0}, "ports": []}
        container = self.hapax({**self.UPSTREAM, "containerPatch": patch})
        self.assertIs(container["stdin"], False)
        self.assertEqual(container["securityContext"]["runAsGroup"], 0)
        self.assertEqual(container["securityContext"]["runAsUser"], 65532)
        self.assertNotIn("capabilities", container["securityContext"])
        self.assertEqual(container["ports"], [])
        self.assertEqual(container["startupProbe"]["failureThreshold"], 0)
        self.assertEqual(container["startupProbe"]["periodSeconds"], 1)

    def test_null_takes_away_what_the_chart_has(self):
        nothing = {"resources": None, "securityContext": None, "probes": {"startup": None, "liveness": None}, "config": None}
        for values in [nothing, {**nothing, "probes": None}]:
            container = self.hapax({**self.UPSTREAM, **values, "configMap": {"create": True}})
            self.assertFalse({"resources", "securityContext", "startupProbe", "livenessProbe"} & set(container))

    def test_false_and_zero_of_the_configuration(self):
        config = {"sequence": {"resolve": False}, "limits": {"orphans": 0}, "upstream": {"reconnectBackoff": 0}}
        told = variables(self.hapax({**self.UPSTREAM, "config": config}))
        self.assertEqual(told["HAPAX_SEQUENCE_RESOLVE"], "false")
        self.assertEqual(told["HAPAX_LIMITS_ORPHANS"], "0")
        self.assertEqual(told["HAPAX_UPSTREAM_RECONNECT_BACKOFF"], "0")

    def test_numbers_of_bytes_are_written_out(self):
        told = variables(self.hapax({**self.UPSTREAM, "config": {"limits": {"collectedBytes": 1099511627776}}}))
        self.assertEqual(told["HAPAX_LIMITS_COLLECTED_BYTES"], "1099511627776")

    def test_variables_and_flags_of_the_user_win(self):
        values = {**self.UPSTREAM, "config": {"log": {"level": "warn"}}}
        for extra in [{"HAPAX_LOG_LEVEL": "debug"}, [{"name": "HAPAX_LOG_LEVEL", "value": "debug"}]]:
            self.assertEqual(variables(self.hapax({**values, "extraEnv": extra}))["HAPAX_LOG_LEVEL"], "debug")
        for extra in [{"metrics-max-topics": 0, "sequence-shield45": None}, ["--metrics-max-topics=0", "--sequence-shield45"]]:
            arguments = self.hapax({**values, "extraArgs": extra})["args"]
            self.assertEqual(arguments, ["run", "--metrics-max-topics=0", "--sequence-shield45"])

    def test_objects_of_kubernetes_pass_untouched(self):
        resources = {"claims": [{"name": "x"}], "limits": {"memory": "1Gi", "vendor.example/thing": 0}}
        container = self.hapax({**self.UPSTREAM, "resources": resources})
        self.assertEqual(container["resources"]["claims"], [{"name": "x"}])
        self.assertEqual(container["resources"]["limits"], resources["limits"])


class Secrets(Case):
    TLS = {"enabled": True, "existingSecret": "kafka-tls"}

    def files(self, pod):
        """Where the container finds which key of which Secret."""
        [mount] = container_of(pod)["volumeMounts"]
        [volume] = pod["spec"]["volumes"]
        self.assertEqual(mount["name"], volume["name"])
        self.assertNotIn("subPath", mount)  # which never changes
        self.assertTrue(mount["readOnly"])
        found = {}
        for source in volume["projected"]["sources"]:
            [item] = source["secret"]["items"]
            found[f"{mount['mountPath']}/{item['path']}"] = (source["secret"]["name"], item["key"])
        return found

    def check(self, values, expected):
        """Each variable of `expected` names a file that is this key of this Secret, and there is no other file."""
        pod = self.pod(values)
        told, files = variables(container_of(pod)), self.files(pod)
        found = {name: files[told[name]] for name in expected}
        self.assertEqual(found, expected)
        self.assertEqual(len(files), len(expected))

    def test_files_of_tls_to_the_brokers(self):
        upstream = {"bootstrap": ["kafka:9094"], "tls": self.TLS}
        self.check({"upstream": upstream}, {"HAPAX_UPSTREAM_TLS_CA_FILE": ("kafka-tls", "ca.crt")})
        both = {**upstream, "tls": {**self.TLS, "caKey": "", "certKey": "c", "keyKey": "k"}}
        expected = {"HAPAX_UPSTREAM_TLS_CERT_FILE": ("kafka-tls", "c"), "HAPAX_UPSTREAM_TLS_KEY_FILE": ("kafka-tls", "k")}
        self.check({"upstream": both}, expected)

    def test_files_of_a_login(self):
        login = {"mechanism": "PLAIN", "existingSecret": "login"}
        upstream = {"bootstrap": ["kafka:9092"], "sasl": login}
        password = {"HAPAX_UPSTREAM_SASL_PASSWORD_FILE": ("login", "password")}
        self.check({"upstream": upstream}, {**password, "HAPAX_UPSTREAM_SASL_USERNAME_FILE": ("login", "username")})
        self.check({"upstream": {**upstream, "sasl": {**login, "username": "me"}}}, password)
        token = {"mechanism": "OAUTHBEARER", "existingSecret": "login", "tokenKey": "token"}
        self.check({"upstream": {**upstream, "sasl": token}}, {"HAPAX_UPSTREAM_SASL_TOKEN_FILE": ("login", "token")})

    def test_files_for_clients(self):
        listen = {"tls": {"existingSecret": "tls", "clientCaKey": "ca.crt"}, "sasl": {"existingSecret": "users"}}
        expected = {
            "HAPAX_LISTEN_TLS_CERT_FILE": ("tls", "tls.crt"),
            "HAPAX_LISTEN_TLS_KEY_FILE": ("tls", "tls.key"),
            "HAPAX_LISTEN_TLS_CLIENT_CA_FILE": ("tls", "ca.crt"),
            "HAPAX_LISTEN_SASL_USERS_FILE": ("users", "users"),
        }
        self.check({"upstream": {"bootstrap": ["kafka:9092"]}, "listen": listen}, expected)

    def test_the_container_can_read_them_with_and_without_an_fs_group(self):
        """The files as the kubelet makes them: root's, in a dated directory, of the group and readable by it with an fsGroup."""
        login = {"mechanism": "PLAIN", "existingSecret": "login"}
        values = {"upstream": {"bootstrap": ["kafka:9092"], "sasl": login}, "listen": {"sasl": {"existingSecret": "users"}}}
        pod = self.pod(values)
        [volume] = pod["spec"]["volumes"]
        container = container_of(pod)
        context = container["securityContext"]
        made = subprocess.run([generate.hapax(), "user", "me"], input="secret", check=True, capture_output=True, text=True).stdout
        contents = {"username": "me", "password": "secret", "users": made}
        for fs_group in (None, 2000):
            with self.subTest(fsGroup=fs_group), tempfile.TemporaryDirectory() as folder:
                os.chmod(folder, 0o755)
                program = shutil.copy(generate.hapax(), folder)  # the folder above may be for root only
                mounted = Path(folder) / "mounted"
                self.mount(volume["projected"], mounted, contents, fs_group)
                told = {name: value.replace("/etc/hapax", str(mounted)) for name, value in variables(container).items()}
                done = subprocess.run(
                    [program, "check", "--listen-sasl-mechanisms=SCRAM-SHA-256"],
                    env=told,
                    user=context["runAsUser"],
                    group=context["runAsGroup"],
                    extra_groups=[fs_group] if fs_group else [],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def mount(self, projected, folder, contents, fs_group):
        dated = folder / "..2026_11_30_15_00_00.1234567890"
        dated.mkdir(parents=True)
        for source in projected["sources"]:
            for item in source["secret"]["items"]:
                file = dated / item["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(contents[item["key"]])
                os.chown(file, 0, fs_group or 0)
                file.chmod(projected["defaultMode"] | (0o440 if fs_group else 0))
        (folder / "..data").symlink_to(dated.name)
        for path in dated.iterdir():
            (folder / path.name).symlink_to(f"..data/{path.name}")

    def test_no_secret_means_no_volume(self):
        pod = self.pod({"upstream": {"bootstrap": ["kafka:9092"]}})
        self.assertNotIn("volumes", pod["spec"])
        self.assertNotIn("volumeMounts", container_of(pod))


class Reload(Case):
    VALUES = {"upstream": {"bootstrap": ["kafka:9092"]}, "configMap": {"create": True}}

    def rendered(self, config):
        found = documents(self.template({**self.VALUES, "config": config}))
        return found["ConfigMap"], found["Deployment"]["spec"]["template"]

    def test_the_file_is_the_configuration_and_nothing_wins_over_it(self):
        config = {"sequence": {"mode": "observe", "ttl": "1m"}, "log": {"level": "debug"}}
        config_map, pod = self.rendered(config)
        [(name, text)] = config_map["data"].items()
        self.assertEqual(yaml.safe_load(text), config)
        container = container_of(pod)
        told = variables(container)
        [mount] = container["volumeMounts"]
        [volume] = pod["spec"]["volumes"]
        [source] = volume["projected"]["sources"]
        self.assertEqual(source["configMap"]["name"], config_map["metadata"]["name"])
        [item] = source["configMap"]["items"]
        self.assertEqual((item["key"], f"{mount['mountPath']}/{item['path']}"), (name, told["HAPAX_CONFIG"]))
        self.assertFalse({"HAPAX_MODE", "HAPAX_SEQUENCE_TTL", "HAPAX_LOG_LEVEL"} & set(told))

    def test_pods_restart_for_a_key_that_needs_it_and_for_no_other(self):
        before, pod = self.rendered({"sequence": {"mode": "observe", "ttl": "1m"}, "log": {"level": "info"}})
        reloaded, same = self.rendered({"sequence": {"mode": "observe", "ttl": "2m"}, "log": {"level": "debug"}, "limits": {"inFlight": 5}})
        self.assertNotEqual(before["metadata"]["annotations"], reloaded["metadata"]["annotations"])
        self.assertEqual(pod, same)
        _, other = self.rendered({"sequence": {"mode": "absorb", "ttl": "1m"}, "log": {"level": "info"}})
        self.assertNotEqual(pod, other)

    def test_a_configmap_of_the_team_is_read_as_it_is(self):
        values = {"upstream": {"bootstrap": []}, "existingConfigMap": "of-the-team", "configMap": {"key": "proxy.yaml"}}
        text = self.template(values)
        self.assertEqual(set(documents(text)), {"Deployment"})
        pod = pod_of(text)
        [volume] = pod["spec"]["volumes"]
        [source] = volume["projected"]["sources"]
        self.assertEqual(source["configMap"], {"name": "of-the-team", "items": [{"key": "proxy.yaml", "path": "config/proxy.yaml"}]})
        told = variables(container_of(pod))
        self.assertNotIn("HAPAX_UPSTREAM", told)
        # The Pod's own fields follow these, whatever the file says.
        self.assertEqual(told["HAPAX_LISTEN"], "127.0.0.1:19092")
        self.assertEqual(told["HAPAX_DRAIN_TIMEOUT"], "25s")


class Images(Case):
    UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}}

    def check(self, image, expected, registry=None):
        values = {"hapax": {**self.UPSTREAM, "image": image}}
        if registry:
            values["global"] = {"imageRegistry": registry}
        self.assertEqual(container_of(pod_of(self.template_app(values)))["image"], expected)

    def test_where_it_comes_from(self):
        digest = "sha256:" + "a" * 64
        self.check({}, "ghcr.io/hapax-kafka/hapax:0.1.0")
        self.check({"tag": "1.10"}, "ghcr.io/hapax-kafka/hapax:1.10")
        self.check({"tag": "1.10", "digest": digest}, f"ghcr.io/hapax-kafka/hapax@{digest}")
        self.check({}, "mirror.example.com/hapax-kafka/hapax:0.1.0", registry="mirror.example.com")
        self.check({"registry": "", "repository": "own"}, "own:0.1.0")


class Refusals(Case):
    """What users type wrong is told by Helm, with the key, before anything is installed."""

    UPSTREAM = {"upstream": {"bootstrap": ["kafka:9092"]}}

    def test_no_brokers(self):
        self.refused({"upstream": {"bootstrap": []}}, "hapax.upstream.bootstrap is empty", "such as [kafka:9092]")

    def test_typing_errors_on_our_level(self):
        for values, name in [
            ({"brokerz": ["kafka:9092"]}, "brokerz"),
            ({"upstream": {"bootstrapServers": "kafka:9092"}}, "bootstrapServers"),
            ({"image": {"tags": "1"}}, "tags"),
            ({"native": True, "probe": {}}, "probe"),
            ({"drain": {"timeoutSeconds": 25}}, "timeoutSeconds"),
            ({"upstream": {"tls": {"secretName": "x"}}}, "secretName"),
            ({"resource": {"limits": {"memory": "1Gi"}}}, "resource"),
            ({"config": {"sequnce": {"mode": "observe"}}}, "sequnce"),
            ({"config": {"sequence": {"Mode": "observe"}}}, "Mode"),
        ]:
            with self.subTest(values):
                self.refused({**self.UPSTREAM, **values}, name, "not allowed")

    def test_values_of_another_kind(self):
        """Among them what public charts have shipped: switches and ports as texts, a list where one address is meant."""
        for values in [
            {"native": "false"},
            {"enabled": '"false"'},
            {"metrics": {"annotations": '"true"'}},
            {"upstream": {"bootstrap": ["kafka"]}},
            {"upstream": {"bootstrap": ["kafka:port"]}},
            {"upstream": {"bootstrap": "kafka"}},
            {"upstream": {"bootstrap": "kafka:9092 kafka-1:9092"}},
            {"upstream": {"bootstrap": {"kafka": 9092}}},
            {"upstream": {"bootstrap": ["kafka-0:9092,kafka-1:9092"]}},
            {"listen": {"bootstrap": 19092}},
            {"listen": {"bootstrap": ["127.0.0.1:19092"]}},
            {"listen": {"brokerPorts": "19093"}},
            {"admin": {"listen": "9180"}},
            {"image": {"tag": 1.10}},
            {"image": {"digest": "0123"}},
            {"image": {"pullPolicy": "always"}},
            {"drain": {"timeout": "25"}},
            {"drain": {"timeout": 25}},
            {"drain": {"until": "idle"}},
            {"upstream": {"sasl": {"mechanism": "SCRAM"}}},
            {"name": "Hapax_1"},
            {"extraEnvFrom": {"secretRef": {"name": "x"}}},
            {"securityContext": []},
            {"config": {"sequence": {"mode": "observing"}}},
            {"config": {"sequence": {"windowBatches": "five"}}},
        ]:
            with self.subTest(values):
                self.refused({**self.UPSTREAM, **values}, "meet the specifications of the schema")

    def test_a_file_that_is_no_yaml(self):
        for text in [
            "hapax:\n  upstream:\n    bootstrap: [kafka:9092]\n   listen: {}\n",  # three spaces under two
            "hapax:\n\tupstream:\n\t\tbootstrap: [kafka:9092]\n",  # tabs
        ]:
            with self.subTest(text), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                with self.assertRaises(rendering.Refused):
                    self.workshop.template(rendering.Scenario(APP, Path(file.name)))

    def test_what_makes_no_sense_together(self):
        for values, said in [
            ({"upstream": {"bootstrap": ["k:1"], "tls": {"existingSecret": "x"}}}, "hapax.upstream.tls.enabled is not"),
            ({"upstream": {"bootstrap": ["k:1"], "tls": {"enabled": True, "existingSecret": "x", "certKey": "c"}}}, "keyKey belong together"),
            ({"upstream": {"bootstrap": ["k:1"], "sasl": {"existingSecret": "x"}}}, "hapax.upstream.sasl.mechanism is none"),
            ({"config": {"upstream": {"bootstrap": ["k:1"]}}}, "set hapax.upstream.bootstrap"),
            ({"config": {"drain": {"timeout": "5s"}}}, "set hapax.drain.timeout"),
            ({"config": {"admin": {"listen": "[::]:1"}}}, "set hapax.admin.listen"),
            ({"config": {"listen": {"bootstrap": "127.0.0.1:1"}}}, "set hapax.listen.bootstrap"),
            ({"config": {"state": {"dir": "/var/lib/hapax"}}}, "set hapax.state.enabled"),
        ]:
            with self.subTest(values):
                self.refused({**self.UPSTREAM, **values}, said)

    def test_a_cluster_that_is_too_old_for_a_native_sidecar(self):
        # It would drop the field, and the application would wait for an init container that does not end.
        with self.assertRaises(rendering.Refused) as refused:
            self.template(self.UPSTREAM, "--kube-version", "1.28.9")
        self.assertIn("hapax.native needs Kubernetes 1.29 and this is v1.28.9", str(refused.exception))
        self.assertIn("hapax", self.template({**self.UPSTREAM, "native": False}, "--kube-version", "1.25.0"))

    def test_values_that_are_elsewhere(self):
        workshop = rendering.Workshop()
        self.addCleanup(workshop.close)
        described = workshop.chart(APP) / "Chart.yaml"
        described.write_text(described.read_text().replace("alias: hapax", "alias: proxy"))
        values = workshop.chart(APP) / "values.yaml"
        values.write_text(values.read_text().replace("hapax:", "proxy:"))
        rendering.helm("dependency", "update", workshop.chart(APP))
        with self.assertRaises(rendering.Refused) as refused:
            workshop.template(rendering.Scenario(APP, None))
        self.assertIn("neither under hapax-sidecar nor under hapax", str(refused.exception))


class Documented(unittest.TestCase):
    """What the README says that one has to type is all that one has to type."""

    README = rendering.ROOT / "charts" / SHOWN / "README.md"
    WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: typed
spec:
  selector:
    matchLabels: {app: typed}
  template:
    metadata:
      labels: {app: typed}
    spec:
      containers:
        - name: app
          image: app
          env:
            - {name: SERVERS, value: "{{ .Values.bootstrapServers }}"}
"""

    def test_the_eight_lines(self):
        section = self.README.read_text().split("## Eight lines")[1].split("\n## ")[0]
        dependency, includes, values = [block.split("```")[0] for block in section.split("```yaml\n")[1:]]
        self.assertEqual(sum(len(block.splitlines()) for block in (dependency, includes, values)), 8)
        dependency = yaml.safe_load(dependency)
        dependency["dependencies"][0]["repository"] = f"file://{rendering.ROOT / 'charts' / SHOWN}"
        with tempfile.TemporaryDirectory() as folder:
            chart = Path(folder) / "typed"
            (chart / "templates").mkdir(parents=True)
            (chart / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "typed", "version": "1.0.0", **dependency}))
            (chart / "values.yaml").write_text(values)
            (chart / "templates" / "workload.yaml").write_text(self.WORKLOAD + includes)
            rendering.helm("dependency", "update", chart)
            pod = pod_of(rendering.helm("template", "shop", chart, "--kube-version", "1.34.4"))
        [container] = pod["spec"]["initContainers"]
        self.assertEqual(container["restartPolicy"], "Always")
        self.assertEqual(variables(container)["HAPAX_UPSTREAM"], "kafka:9092")
        [app] = pod["spec"]["containers"]
        self.assertEqual(app["env"], [{"name": "SERVERS", "value": "localhost:19092"}])


class Understood(Case):
    """hapax itself reads what the chart tells it, and says that it holds."""

    def printed(self, container, files=None):
        """`hapax config print` as the container would, without what its volumes hold."""
        told = variables(container)
        environment = {name: value for name, value in told.items() if not name.endswith("_FILE") and name != "HAPAX_CONFIG"}
        with tempfile.TemporaryDirectory() as folder:
            for name in set(told) - set(environment):
                path = Path(folder) / name
                path.write_text((files or {}).get(name, ""))
                environment[name] = str(path)
            command = [generate.hapax(), "config", "print", *container["args"][1:]]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("is no variable", done.stderr)
        return yaml.safe_load(done.stdout)

    def test_every_scenario_is_a_valid_configuration(self):
        for scenario in rendering.scenarios(APP):
            if not scenario.values or scenario.values.name.startswith(("disabled", "existing")):
                continue
            with self.subTest(str(scenario)):
                text = self.workshop.template(scenario)
                asked = yaml.safe_load(scenario.values.read_text())["hapax"]
                data = documents(text).get("ConfigMap", {}).get("data", {})
                container = container_of(pod_of(text), asked.get("name", "hapax"))
                held = self.printed(container, {"HAPAX_CONFIG": "".join(data.values())})
                self.assert_within(asked.get("config", {}), held)

    def assert_within(self, asked, held):
        for key, value in asked.items():
            if isinstance(value, dict):
                self.assert_within(value, held[key])
            elif key == "policies":
                self.assertEqual(len(held[key]), len(value))
            else:
                self.assertIn(held[key], (value, f"{value}s", f"{value}ms", str(value)), key)


if __name__ == "__main__":
    unittest.main()
