"""What Grafana does with a dashboard until its queries are asked: loads it in one of three ways, and resolves its variables."""
import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "config/grafana"
NAMES = ["hapax.json", "hapax-producers.json"]
# What Grafana itself puts in.
BUILT_IN = {"__rate_interval", "__interval", "__range"}
CONFIG_MAP_BYTES_MAX = 1 << 20


def by_file(name):
    """As the provider of the provisioning folder does: every .json file of its folder, which must say by itself what it is."""
    provider, = yaml.safe_load((FOLDER / "provisioning/dashboards/hapax.yaml").read_text())["providers"]
    if provider["type"] != "file" or not provider["options"]["path"]:
        raise ValueError("the provider reads no folder")
    return checked(json.loads((FOLDER / name).read_text()))


def by_config_map(name):
    """As the sidecar of kube-prometheus-stack does: the text of a key of a labelled ConfigMap becomes such a file."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hapax", "labels": {"grafana_dashboard": "1"}},
                  "data": {name: (FOLDER / name).read_text()}}
    text = yaml.safe_dump(config_map)
    if len(text) > CONFIG_MAP_BYTES_MAX:
        raise ValueError("the API server takes no ConfigMap of that size")
    return checked(json.loads(yaml.safe_load(text)["data"][name]))


def by_import(name):
    """As the form does: what a file lists under __inputs is asked for and replaced everywhere; the rest stays."""
    dashboard = json.loads((FOLDER / name).read_text())
    inputs = dashboard.pop("__inputs", [])
    if inputs:
        raise ValueError(f"the form asks for {inputs}")
    return checked(dashboard | {"id": None})


WAYS = {"file": by_file, "config map": by_config_map, "import": by_import}


def checked(dashboard):
    """Grafana refuses a file without a title, and takes an id of another database for one of its own."""
    if not dashboard["title"] or not dashboard["uid"] or dashboard.get("id") is not None:
        raise ValueError("a dashboard is known by its title and uid alone")
    return dashboard


def panels(dashboard):
    """Those that show something; none is hidden in a row that is folded."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def variables(text):
    return {found[1] or found[2] for found in re.finditer(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", text)}


class Resolver:
    """Values for the variables of a dashboard, as it is first opened: All of everything.

    sources are the data sources that there are, as (type, uid); values_of asks Prometheus for a label's values.
    """

    def __init__(self, dashboard, sources, values_of):
        self.values = {}
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "datasource":
                self.values[variable["name"]] = next(uid for kind, uid in sources if kind == variable["query"])
            else:
                self.values[variable["name"]] = self.all_of(variable, values_of)

    def all_of(self, variable, values_of):
        self.uid(variable["datasource"])
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        offered = values_of(self.text(found[1]), found[2])
        if variable["allValue"]:
            return variable["allValue"]
        return "(" + "|".join(re.escape(value) for value in offered) + ")"

    def uid(self, datasource):
        """The data source that a panel or variable asks."""
        return self.text(datasource["uid"])

    def text(self, text, **built_in):
        values = self.values | built_in
        missing = variables(text) - values.keys()
        if missing:
            raise KeyError(f"no variable {missing} for {text}")
        return re.sub(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", lambda found: values[found[1] or found[2]], text)
