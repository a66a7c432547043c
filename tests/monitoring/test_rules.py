"""Rules and alerts: they load, they fire and are silent as their own tests say, and name what hapax exports."""
import json
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

import grafana
import promql
import scrapes
import world

FOLDER = world.PROMETHEUS
HEADINGS = ["## What it means", "## What it does to you", "## Find the cause", "## What to do"]


def load(name):
    return yaml.safe_load((FOLDER / name).read_text())


def rules(name):
    return [rule for group in load(name)["groups"] for rule in group["rules"]]


ALERTS = rules("alerts.yaml")
NAMES = sorted({alert["alert"] for alert in ALERTS})
RECORDED = {rule["record"] for rule in rules("rules.yaml")}


def promtool(*arguments, folder=FOLDER):
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def parse(queries):
    """What promtool has to say about queries: rules that record them are checked."""
    with tempfile.TemporaryDirectory() as folder:
        made = {"groups": [{"name": "queries", "rules": [{"record": f"q{at}", "expr": query} for at, query in enumerate(queries)]}]}
        (pathlib.Path(folder) / "queries.yaml").write_text(json.dumps(made))
        return promtool("check", "rules", "queries.yaml", folder=folder)


def page(alert):
    return (FOLDER / "runbooks" / f"{alert}.md").read_text()


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def runbook_queries():
    return [line for alert in NAMES for block in blocks(page(alert), "promql") for line in block.strip().splitlines()]


def dashboard_queries():
    """Every query of every panel, with what a variable may become."""
    found = []
    for name in grafana.NAMES:
        dashboard = grafana.by_file(name)
        resolver = grafana.Resolver(dashboard, [("prometheus", "p")], lambda selector, label: ["a", "b"])
        for panel in grafana.panels(dashboard):
            found += [resolver.text(target["expr"], __rate_interval="1m") for target in panel.get("targets", [])]
        found += [resolver.text(annotation["expr"]) for annotation in dashboard["annotations"]["list"]]
        found += [resolver.text(re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])[1])
                  for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    return found


class TestRules(unittest.TestCase):
    def test_promtool_takes_them(self):
        for name in ("rules.yaml", "alerts.yaml"):
            ran = promtool("check", "rules", name)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertIn(f"{len(rules(name))} rules found", ran.stdout)

    def test_alerts_fire_and_are_silent_as_their_tests_say(self):
        ran = promtool("test", "rules", "tests/alerts.yaml")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_each_alert_has_cases_of_both_kinds(self):
        cases = load("tests/alerts.yaml")["tests"]
        fired = {re.search(r'alertname="(\w+)",severity="(\w+)"', sample["labels"]).groups()
                 for case in cases for test in case["promql_expr_test"] for sample in test["exp_samples"]}
        self.assertEqual(fired, {(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS})
        silent = {case["name"].split(":")[0] for case in cases if ": silent" in case["name"]}
        self.assertEqual(silent, set(NAMES))
        for case in cases:
            fires = any(test["exp_samples"] for test in case["promql_expr_test"])
            self.assertEqual(fires, ": silent" not in case["name"], case["name"])

    def test_each_alert_says_what_to_do(self):
        for alert in ALERTS:
            with self.subTest(alert["alert"]):
                self.assertIn(alert["labels"]["severity"], ("critical", "warning", "info"))
                said = alert["annotations"]
                self.assertEqual(said.keys(), {"summary", "description", "runbook_url", "dashboard"})
                self.assertTrue(said["runbook_url"].endswith(f"/config/prometheus/runbooks/{alert['alert']}.md"), said["runbook_url"])
                self.assertRegex(alert["expr"].strip(), r"[<>=] [\d.]+$", "the threshold is what the expression ends with")

    def test_dashboard_links_lead_to_the_dashboard_and_its_variables(self):
        dashboard = grafana.by_file("hapax.json")
        known = {variable["name"] for variable in dashboard["templating"]["list"]}
        for alert in ALERTS:
            link = alert["annotations"]["dashboard"]
            self.assertTrue(link.startswith(f"/d/{dashboard['uid']}/"), link)
            self.assertLessEqual(set(re.findall(r"var-(\w+)=", link)), known)

    def test_each_alert_has_its_page_and_each_page_its_alert(self):
        pages = {path.stem for path in (FOLDER / "runbooks").glob("*.md")} - {"README"}
        self.assertEqual(pages, set(NAMES))
        index = (FOLDER / "runbooks/README.md").read_text()
        for alert in NAMES:
            text = page(alert)
            self.assertEqual(text.splitlines()[0], f"# {alert}", "by which it is linked to")
            self.assertEqual([line for line in text.splitlines() if line.startswith("## ")], HEADINGS, alert)
            self.assertIn(f"({alert}.md)", index)
            for target in re.findall(r"\]\((\w+\.md)\)", text):
                self.assertTrue((FOLDER / "runbooks" / target).exists(), f"{alert}: {target}")

    def test_pages_use_commands_that_there_are(self):
        helped = subprocess.run([world.hapax_binary(), "--help"], capture_output=True, text=True, check=True).stdout
        commands = set(re.findall(r"^  (\S+)  ", helped, re.M))
        typed = "\n".join(f"`{line}" for alert in NAMES for block in blocks(page(alert), "sh") for line in block.splitlines())
        texts = [typed] + [page(alert) for alert in NAMES]
        used = {found for text in texts for found in re.findall(r"(?:-- |`)hapax ([a-z-]+)", text)}
        used |= {found for alert in ALERTS for found in re.findall(r"`hapax ([a-z-]+)", alert["annotations"]["description"])}
        self.assertGreater(len(used), 5)
        self.assertLessEqual(used, commands)

    def test_configuration_keys_that_are_named_exist(self):
        keys = keys_of(yaml.safe_load((world.ROOT / "config/hapax.yaml").read_text()))
        sections = {key.split(".")[0] for key in keys if "." in key}
        texts = [page(alert) for alert in NAMES] + [alert["annotations"]["description"] for alert in ALERTS]
        texts += [panel["description"] for name in grafana.NAMES for panel in grafana.panels(grafana.by_file(name)) if "description" in panel]
        named = {key for text in texts for key in re.findall(rf"\b(?:{'|'.join(sections)})(?:\.[a-z][A-Za-z0-9]+)+", text)}
        self.assertGreater(len(named), 10)
        self.assertLessEqual(named, keys | {key.rsplit(".", 1)[0] for key in keys})

    def test_scrape_configurations_load(self):
        ran = promtool("check", "config", "prometheus.yaml")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


def keys_of(values, before=""):
    found = set()
    for key, value in values.items():
        found.add(before + key)
        if isinstance(value, dict):
            found |= keys_of(value, f"{before}{key}.")
    return found


class TestQueries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.exported = promql.Exported(*scrapes.all_families())

    def test_promtool_parses_every_query(self):
        queries = dashboard_queries() + runbook_queries()
        self.assertGreater(len(queries), 80)
        ran = parse(queries)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_queries_name_what_hapax_exports(self):
        queries = dashboard_queries() + runbook_queries() + [rule["expr"] for rule in ALERTS + rules("rules.yaml")]
        complaints = [f"{complaint}: {query}" for query in queries for complaint in promql.complaints(query, self.exported, RECORDED)]
        self.assertEqual(complaints, [])

    def test_what_is_not_exported_is_noticed(self):
        for query, complaint in (
            ("hapax_verdict_total", "no metric hapax_verdict_total"),
            ('rate(hapax_verdicts_total{verdict="gaps"}[1m])', "hapax_verdicts_total has no verdict like gaps"),
            ('hapax_verdicts_total{verdict=~"gap|absorbed_.+"}', "hapax_verdicts_total has no verdict like absorbed_.+"),
            ('hapax_verdicts_total{kind="gap"}', "hapax_verdicts_total has no label kind"),
            ("sum by (kind) (hapax_verdicts_total)", "nothing has a label kind"),
            ("job:hapax_batches:rate1m", "no metric job:hapax_batches:rate1m"),
        ):
            self.assertEqual(promql.complaints(query, self.exported, RECORDED), [complaint])

    def test_alerts_ask_for_what_exists_from_the_start(self):
        """A counter that begins with its first event has no increase at it."""
        with_topics = {"hapax_produce_batches_total", "hapax_produce_records_total", "hapax_missing_records_total", "hapax_broker_sequence_errors_total",
                       "hapax_policy_violations_total"}
        asked = {name for rule in ALERTS + rules("rules.yaml") for name, _ in promql.selectors(rule["expr"])}
        self.assertEqual(asked & with_topics, set())


if __name__ == "__main__":
    unittest.main()
