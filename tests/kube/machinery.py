"""What the tests share: one server, charts, both versions of Helm, and what the report says."""

import functools
import time

import rendering
import schemas
from cluster import PROGRAMS, Cluster, Refused

HELMS = {"3": rendering.INSTALLED / "helm", "4": PROGRAMS / "helm4"}
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}

# Rows of the report, by part.
rows = {"scenarios": [], "upgrade": [], "injection": []}


@functools.cache
def cluster():
    """The server, with the definitions of the objects that the operators of Prometheus and Grafana read."""
    server = Cluster()
    definitions = schemas.custom_resources()
    server.apply(definitions)
    for definition in definitions:
        server.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{definition['metadata']['name']}")
    return server


@functools.cache
def workshop():
    return rendering.Workshop()


def close():
    if cluster.cache_info().currsize:
        cluster().close()
    if workshop.cache_info().currsize:
        workshop().close()


def namespace(name, **labels):
    cluster().apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**RESTRICTED, **labels}}}])
    return name


def every_scenario():
    return [scenario for chart in rendering.applications() for scenario in rendering.scenarios(chart)]


def helm(version, *arguments):
    """Helm, on the server."""
    return rendering.helm(*arguments, "--kubeconfig", cluster().kubeconfig, program=HELMS[version])


def helm_version(version):
    return rendering.helm("version", "--template", "{{.Version}}", program=HELMS[version])


def await_that(condition, what):
    """Waits until condition() is true: admission sees a new policy a moment after it was made."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within a minute: {what}")
        time.sleep(0.1)


__all__ = ["Refused"]
