"""Commands on the machines of a fleet, over ssh."""

import io
import json
import os
import pathlib
import shlex
import subprocess
import tarfile
import time

import exits

PACKAGE = pathlib.Path(__file__).resolve().parent
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
           "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")

# What the probe runs there: one line of JSON.
PROBE = """
import json, os, platform, subprocess, sys
model, binaries, run_dir = sys.argv[1:]
found = {"python": list(sys.version_info[:3]), "machine": platform.machine(),
         "cores": len(os.sched_getaffinity(0)), "home": os.getcwd(),
         "has_model": os.path.exists(os.path.expanduser(model)),
         "has_binaries": os.path.exists(os.path.join(binaries or run_dir,
                                                     "sluice-stage"))}
print(json.dumps(found))
"""


def ssh_command():
    """The ssh program and its options; SLUICE_SSH replaces the program."""
    return [*shlex.split(os.environ.get("SLUICE_SSH") or "ssh"), *OPTIONS]


def command_for(host, words):
    """The argv that runs `words` on the host, in its home folder."""
    line = shlex.join(map(str, words))
    if host.ssh == "local":
        return ["sh", "-c", f"cd && exec {line}"]
    return [*ssh_command(), "--", host.ssh, line]


def run(host, words, stdin=b"", seconds=120):
    """What the command prints. Failure, with its last words, if it fails."""
    try:
        done = subprocess.run(command_for(host, words), input=stdin,
                              capture_output=True, timeout=seconds,
                              check=False)
    except subprocess.TimeoutExpired:
        raise exits.Failure(exits.NOT_READY, f"host {host.name}: '{words[0]}' "
                            f"did not end within {seconds} s") from None
    except OSError as error:
        raise exits.Failure(exits.SETUP_FAILED, f"ssh cannot be started: "
                            f"{error}") from None
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    text = done.stderr.decode(errors="replace").strip() or \
        f"exit status {done.returncode}"
    if done.returncode == 255 and host.ssh != "local":
        raise exits.Failure(exits.NOT_READY, f"host {host.name} ({host.ssh}) "
                            f"cannot be reached: {text}")
    raise exits.Failure(exits.NOT_READY, f"host {host.name}: {text}")


def probe(host, run_dir):
    """What the machine is and has."""
    try:
        text = run(host, ["python3", "-c", PROBE, host.model, host.binaries,
                          run_dir], seconds=30)
        found = json.loads(text.strip().splitlines()[-1])
    except exits.Failure as failure:
        if "python3" in str(failure) and "not found" in str(failure):
            raise exits.Failure(exits.NOT_READY, f"host {host.name}: python3 "
                                "is missing there") from None
        raise
    except (ValueError, IndexError):
        raise exits.Failure(
            exits.NOT_READY, f"host {host.name}: its shell prints something "
            f"of its own before a command's output: {text[:200]!r}") from None
    if found["python"] < [3, 9]:
        version = ".".join(map(str, found["python"]))
        raise exits.Failure(exits.NOT_READY, f"host {host.name}: its python3 "
                            f"is {version}, 3.9 is needed")
    return found


def send(host, folder, files):
    """Unpacks {name: (bytes or path, mode)} into `folder` there, which its
    user alone reads."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, (source, mode) in files.items():
            data = source if isinstance(source, bytes) else \
                pathlib.Path(source).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            entry.mtime = int(time.time())  # at 0 gRPC sees no file
            tar.addfile(entry, io.BytesIO(data))
    quoted = shlex.quote(folder)
    run(host, ["sh", "-c", f"umask 077 && mkdir -p {quoted} && "
               f"tar -C {quoted} -xpf -"], packed.getvalue(), seconds=1800)


def package_files():
    """This package, as `send` takes it."""
    return {f"cluster/{path.name}": (path, 0o600)
            for path in sorted(PACKAGE.glob("*.py"))}
