"""Commands on the machines of a fleet, over ssh."""

import functools
import hashlib
import io
import os
import pathlib
import shlex
import subprocess
import tarfile
import tempfile
import time

import exits
import installation
import layout

OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
           "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3")

# What the probe runs there, by sh alone: a line for each of FACTS, behind what
# the shell may say of its own. $1 is the model, $2 the folder of binaries.
MARK = "sluice-probe"
PROBE = f"""
echo {MARK}
uname -m
pwd
(nproc || grep -c ^processor /proc/cpuinfo) 2>/dev/null
model=$1
case $1 in "~/"*) model=$HOME/${{1#"~/"}} ;; esac
test -e "$model" && echo yes || echo no
test -x "$2/sluice-stage" && echo yes || echo no
test -x "$2/sluice" && echo yes || echo no
test -x "$2/../{installation.PYTHON}" && echo yes || echo no
python3 -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null || echo none
"""
FACTS = ("machine", "home", "cores", "has_model", "has_stage", "has_command",
         "has_bundle", "python")
PYTHON_NEEDED = (3, 9)


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
    """What the command prints; `stdin`: bytes, or an open file. Failure, with
    its last words, if it fails."""
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    try:
        done = subprocess.run(command_for(host, words), capture_output=True,
                              timeout=seconds, check=False, **given)
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


def probe(host):
    """What the machine is and has, and the interpreter to run there; None: that
    of the bundle, which is sent."""
    text = run(host, ["sh", "-c", PROBE, "sh", host.model,
                      host.binaries or "/nonexistent"], seconds=30)
    lines = text.partition(MARK + "\n")[2].splitlines()
    if len(lines) != len(FACTS):
        raise exits.Failure(exits.NOT_READY, f"host {host.name}: its shell "
                            f"does not run what it is sent: {text[:200]!r}")
    found = dict(zip(FACTS, lines))
    for name in ("has_model", "has_stage", "has_command", "has_bundle"):
        found[name] = found[name] == "yes"
    found["cores"] = int(found["cores"])
    found["python"] = _interpreter(host, found)
    return found


def _interpreter(host, found):
    if found["has_bundle"]:
        return f"{host.binaries}/../{installation.PYTHON}"
    if not host.binaries and installation.is_bundle():
        return None
    if found["python"] == "none":
        raise exits.Failure(
            exits.NOT_READY, f"host {host.name}: python3 is missing there, "
            "and what is started here is no bundle, which has one")
    version = tuple(map(int, found["python"].split()))
    if version < PYTHON_NEEDED:
        raise exits.Failure(
            exits.NOT_READY, f"host {host.name}: its python3 is "
            f"{'.'.join(map(str, version))}, "
            f"{'.'.join(map(str, PYTHON_NEEDED))} is needed")
    return "python3"


def send(host, folder, files):
    """Unpacks {name: (bytes or path, mode)} into `folder` there, which its
    user alone reads."""
    quoted = shlex.quote(folder)
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, (source, mode) in files.items():
                data = source if isinstance(source, bytes) else \
                    pathlib.Path(source).read_bytes()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), mode
                entry.mtime = int(time.time())  # at 0 gRPC sees no file
                tar.addfile(entry, io.BytesIO(data))
        packed.seek(0)
        run(host, ["sh", "-c", f"umask 077 && mkdir -p {quoted} && "
                   f"tar -C {quoted} -xpf -"], packed, seconds=1800)


def copied():
    """What a host gets of ours to run: paths here, by those in its copy. Of a
    bundle that is the interpreter, too."""
    found = {f"bin/sluice-{role}": pathlib.Path(layout.binary(role))
             for role in ("stage", "gateway")}
    found["bin/sluice"] = pathlib.Path(layout.binary("cli", "sluice"))
    if installation.is_bundle():
        lib = installation.ROOT / "lib"
        found |= {str(path.relative_to(installation.ROOT)): path
                  for path in lib.rglob("*") if path.is_file()}
    return found


@functools.cache
def digest():
    """Tells copies of different builds apart."""
    made = hashlib.sha256()
    for name, path in sorted(copied().items()):
        made.update(name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:12]


def package_files():
    """This package, as `send` takes it."""
    return {f"cluster/{path.name}": (path, 0o600)
            for path in sorted(installation.PACKAGE.glob("*.py"))}
