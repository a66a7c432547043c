"""Starts the image of this machine's platform by podman and runc, with what a restricted pod has: nothing."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(os.environ["TEST_IMAGE"]).resolve()
NAME = f"oci:{FOLDER / 'layout'}"
PODMAN = [
    "podman", "--root", str(FOLDER / "podman"), "--runroot", str(FOLDER / "podman-run"),
    "--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs",
]  # fmt: skip
RESTRICTED = [
    "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges",
    # The limits that a container gets by itself are above those that some machines allow.
    "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
]  # fmt: skip
# What socket() answers where the kernel was started without IPv6.
ADDRESS_FAMILY_NOT_SUPPORTED, IPV6 = 97, 10


def podman(*arguments, expect=0):
    done = subprocess.run([*PODMAN, *arguments], capture_output=True, text=True, timeout=180)
    if done.returncode != expect:
        raise AssertionError(f"podman {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def pull():
    """Takes the image out of the layout, as an engine takes it from a registry, and gives its identity."""
    return podman("pull", "--quiet", NAME).stdout.strip()


def run(image, *arguments, network="host", expect=0):
    """Runs the image to its end."""
    return podman("run", "--rm", f"--network={network}", *RESTRICTED, image, *arguments, expect=expect)


class Container:
    """The image, running, until the end of a `with`."""

    def __init__(self, image, *arguments, network, without_ipv6=False):
        self.profile = tempfile.NamedTemporaryFile("w", suffix=".json")
        options = []
        if without_ipv6:
            json.dump(_no_ipv6(), self.profile)
            self.profile.flush()
            options = [f"--security-opt=seccomp={self.profile.name}"]
        self.command = ["run", "--detach", f"--network={network}", *RESTRICTED, *options, image, *arguments]

    def __enter__(self):
        self.id = podman(*self.command).stdout.strip()
        return self

    def __exit__(self, *_):
        subprocess.run([*PODMAN, "rm", "--force", "--time", "1", self.id], capture_output=True)
        self.profile.close()

    def inspected(self, template):
        return podman("inspect", "--format", template, self.id).stdout.strip()

    def is_running(self):
        return self.inspected("{{.State.Running}}") == "true"

    def status(self):
        """/proc/PID/status of its first process, as the machine sees it."""
        lines = Path(f"/proc/{self.inspected('{{.State.Pid}}')}/status").read_text().splitlines()
        return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}

    def user(self):
        status = self.status()
        return tuple(int(status[name].split()[0]) for name in ("Uid", "Gid"))

    def root_is_read_only(self):
        mounts = Path(f"/proc/{self.inspected('{{.State.Pid}}')}/mountinfo").read_text().splitlines()
        [root] = [line.split() for line in mounts if line.split()[4] == "/"]
        return "ro" in root[5].split(",")

    def execute(self, *command):
        return podman("exec", self.id, *command)

    def signal(self, name):
        podman("kill", "--signal", name, self.id)

    def ended(self):
        """The exit code, once it has ended."""
        return int(podman("wait", self.id).stdout)

    def log(self):
        done = podman("logs", self.id)
        return done.stdout + done.stderr


def _no_ipv6():
    refused = {
        "names": ["socket"],
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": ADDRESS_FAMILY_NOT_SUPPORTED,
        "args": [{"index": 0, "value": IPV6, "op": "SCMP_CMP_EQ"}],
    }
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refused]}
