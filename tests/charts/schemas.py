"""Objects held strictly to Kubernetes' own schemas: an unknown field is an error, which a server would only drop.

The schemas are the OpenAPI document of the Go module k8s.io/kubernetes, and CustomResourceDefinitions: those that
controller-gen makes of the Go types of Prometheus' operator, and one of our own (crds/) for Grafana's operator, whose
module the registry does not serve. What only a server checks (admission, names that refer to each other) is not here.
"""

import functools
import json

import jsonschema
import yaml

import rendering

SWAGGER = rendering.INSTALLED / "kubernetes" / "swagger.json"
DEFINITIONS = rendering.INSTALLED / "kubernetes" / "crds"
OUR_DEFINITIONS = rendering.ROOT / "tests" / "charts" / "crds"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def faults(document):
    """What is wrong with an object, a line each."""
    kind = (document.get("apiVersion"), document.get("kind"))
    schema = kinds().get(kind)
    if schema is None:
        return [f"there is no {kind[1]} of {kind[0]}"]
    validator = jsonschema.Draft202012Validator({**schema, "definitions": swagger()["definitions"]})
    found = [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(without_nulls(document))]
    return sorted(found) + list(duplicates(document))


def without_nulls(here):
    """A field that is null is one that is not there, for a server: an include that renders nothing leaves one."""
    if isinstance(here, dict):
        return {key: without_nulls(value) for key, value in here.items() if value is not None}
    if isinstance(here, list):
        return [without_nulls(item) for item in here]
    return here


def duplicates(here, path="$"):
    """Items of lists that Kubernetes keeps by name, where a name comes twice."""
    if isinstance(here, dict):
        for key, value in here.items():
            yield from duplicates(value, f"{path}.{key}")
    elif isinstance(here, list):
        names = [item["name"] for item in here if isinstance(item, dict) and isinstance(item.get("name"), str)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            if path.rsplit(".", 1)[-1] in NAMED:
                yield f"{path}: {name} is there twice"
        for index, item in enumerate(here):
            yield from duplicates(item, f"{path}[{index}]")


NAMED = {"containers", "initContainers", "env", "volumes", "ports"}


@functools.cache
def swagger():
    document = json.loads(SWAGGER.read_text())
    for name, definition in document["definitions"].items():
        _make_strict(definition, name)
    return document


@functools.cache
def kinds():
    """A schema for each (apiVersion, kind)."""
    found = {}
    for name, definition in swagger()["definitions"].items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            version = "/".join(part for part in (kind["group"], kind["version"]) if part)
            found[version, kind["kind"]] = {"$ref": f"#/definitions/{name}"}
    for definition in custom_resources():
        names = definition["spec"]
        for version in names["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            _make_strict_below(schema)
            schema["properties"]["metadata"] = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            found[f"{names['group']}/{version['name']}", names["names"]["kind"]] = schema
    return found


def custom_resources():
    """CustomResourceDefinitions, as a server takes them."""
    files = [*sorted(DEFINITIONS.glob("*.yaml")), *sorted(OUR_DEFINITIONS.glob("*.yaml"))]
    return [yaml.safe_load(file.read_text()) for file in files]


def _make_strict(definition, name):
    if "properties" in definition:
        definition.setdefault("additionalProperties", False)
    if definition.get("format") == "int-or-string" or name.endswith(".IntOrString"):
        _replace(definition, {"type": ["integer", "string"]})
    elif name == QUANTITY:
        _replace(definition, {"type": ["number", "string"]})


def _make_strict_below(schema):
    if not isinstance(schema, dict):
        return
    if schema.get("x-kubernetes-int-or-string"):
        _replace(schema, {"type": ["integer", "string"]})
        return
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    for part in schema.get("properties", {}).values():
        _make_strict_below(part)
    for part in ("items", "additionalProperties"):
        _make_strict_below(schema.get(part))


def _replace(schema, other):
    schema.clear()
    schema.update(other)
