"""What `sluice plan --write` writes, for tests that read or start it."""

import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Five layers, eight experts in all but the first.
DEMO = ROOT / "deploy/demo_model/weights"
# Little memory for keys and values; what a request of the tests takes.
SMALL = ("--context", "512", "--kv-blocks", "64")


def machine(name, memory="2G", **keys):
    """A [[machine]] of this name."""
    keys = {"name": name, "memory": memory, **keys}
    lines = "".join(f"{key} = \"{value}\"\n" for key, value in keys.items())
    return f"[[machine]]\nread_gb_per_s = 9\n{lines}"


def run(starter, machines, model=DEMO, options=SMALL):
    """`plan --write STARTER` as a finished process. A stage is on each machine for
    layers, unless the options say how many there are."""
    stages = machines.count("[[machine]]") - machines.count('role = "experts"')
    if "--stages" not in options:
        options = (*options, "--stages", str(stages))
    build = pathlib.Path(os.environ["SLUICE_BUILD_DIR"])
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(machines)
        file.flush()
        return subprocess.run(
            [build / "services/cli/sluice", "plan", model, "--machines",
             file.name, "--write", starter, *options],
            capture_output=True, text=True, check=False)


def write(starter, machines, model=DEMO, options=SMALL):
    """What it writes."""
    done = run(starter, machines, model, options)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout
