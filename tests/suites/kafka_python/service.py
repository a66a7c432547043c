"""Stands in for `test/service.py`, which kafka-python's source distribution leaves out: the cluster is always there already."""


class ExternalService:
    """A broker that somebody else starts and ends."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """Nothing to start."""

    def close(self):
        """Nothing to end."""

    stop = dump_logs = close


class SpawnedService:
    """A broker of the suite's own, which no test that runs here asks for."""

    def __init__(self, *_, **__):
        raise NotImplementedError("these tests run against a cluster that is there already")
