"""What /metrics says, from processes of hapax that show every family."""
import contextlib
import pathlib
import subprocess
import tempfile

import wire
import world


def certificate(folder, days):
    """A certificate that is its own CA: the flags that show it to clients."""
    key, shown = folder / "tls.key", folder / "tls.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", shown],
                   check=True, capture_output=True)
    key.chmod(0o600)
    return ["--listen-tls-cert-file", str(shown), "--listen-tls-key-file", str(key)]


def all_families():
    """Of hapax dev once a topic is written to, and of a hapax with a certificate."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        development = world.Hapax("dev", folder, None, "--no-demo", command="dev")
        stack.callback(development.end)
        with wire.Connection(development.bootstrap) as connection:
            leader = connection.leader("orders")
        with wire.Connection(leader) as connection:
            connection.leader("orders")
            connection.produce("orders", wire.batch(connection.producer_id(), 0, [b"x"], 0))
        secure = world.Hapax("secure", folder, f"127.0.0.1:{world.free_port()}", *certificate(folder, 30))
        stack.callback(secure.end)
        return development.metrics(), secure.metrics()
