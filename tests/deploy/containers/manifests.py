"""What the tests of manifests share: tools, overlays, containers, flags."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOLS = ROOT / "build/deploy-tools"
OVERLAYS = sorted(path.parent for path in
                  (ROOT / "k8s/overlays").glob("*/kustomization.yaml"))
BINARIES = {"sluice-gateway": "services/gateway/sluice-gateway",
            "sluice-stage": "services/stage/sluice-stage",
            "sluice-expert": "services/expert/sluice-expert"}
SKIPPED = 77

try:
    import yaml
except ImportError:
    yaml = None


def need(condition, what):
    """Ends the test as skipped, and says why, unless `condition`."""
    if not condition:
        print(f"skipped: {what}")
        sys.exit(SKIPPED)


def tool(name):
    """Path of an installed validator; None without it."""
    path = TOOLS / "bin" / name
    return str(path) if path.exists() else shutil.which(name)


def kustomize(folder):
    """What `kustomize build` makes of a folder, as text."""
    if tool("kustomize"):
        command = [tool("kustomize"), "build", folder]
    else:
        command = ["kubectl", "kustomize", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{folder}: {done.stderr}")
    return done.stdout


def render(folder, wanted, k8s=ROOT / "k8s"):
    """Objects of an overlay of `wanted`, lists of k8s/'s folders by field, which
    is made below `folder`."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization", "namespace": "sluice",
        **{field: [os.path.relpath(k8s / one, folder.resolve())
                   for one in ones] for field, ones in wanted.items()}}))
    return objects(kustomize(folder))


def need_kustomize():
    need(yaml, "no PyYAML: tests/run makes build/venv-containers")
    need(tool("kustomize") or shutil.which("kubectl"),
         "neither kustomize nor kubectl (tests/deploy/containers/install_tools"
         " --long)")


def objects(text):
    return [one for one in yaml.safe_load_all(text) if one]


def pod_templates(one):
    """(role, template) of every pod that an object makes."""
    spec = one.get("spec", {})
    if "template" in spec and "spec" in spec["template"]:
        yield one["metadata"]["name"], spec["template"]
    group = spec.get("leaderWorkerTemplate", {})
    for role in ("leaderTemplate", "workerTemplate"):
        if role in group:
            yield f"{one['metadata']['name']}/{role}", group[role]


def sluice_containers(documents):
    """(name, template, container) of every container that runs Sluice."""
    for one in documents:
        for name, template in pod_templates(one):
            for container in template["spec"]["containers"]:
                if container.get("command", [""])[0] in BINARIES:
                    yield name, template, container


def flag_value(arguments, flag):
    """Value of --FLAG=VALUE among arguments; None without it."""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == f"--{flag}":
            return value
    return None


def flags_of(binary):
    """Names of a binary's options."""
    path = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], BINARIES[binary])
    done = subprocess.run([path, "--help"], capture_output=True, text=True,
                          check=True)
    return set(re.findall(r"^  --([a-z0-9-]+)", done.stdout, re.M))


def check_arguments(binary, arguments, flags):
    """Lines that tell of arguments which `binary` does not take."""
    for argument in arguments:
        match = re.fullmatch(r"--([a-z0-9-]+)(=.*)?", argument)
        if not match:
            yield f"{binary}: {argument} is no --flag=value"
        elif match[1] not in flags:
            yield f"{binary} has no flag {argument}"


def ends(readme):
    """services/README.md's table: binary to (drain seconds, the pairs of
    preStop sleep and grace seconds)."""
    found = {}
    for line in readme.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].strip("`") in BINARIES:
            seconds = [[int(n) for n in re.findall(r"\d+", cell)]
                       for cell in cells[1:]]
            found[cells[0].strip("`")] = (
                seconds[0][0], set(zip(seconds[1], seconds[2])))
    return found
