"""Services of compose files as processes of this machine: what compose makes of
an override, as far as the files of this project use it, and what an engine does
with it. A key that is not known here is an error.

Each service has a loopback address of its own, so that ports are the file's; a
hosts file that the processes alone see has the services' names.
"""

import os
import pathlib
import re
import subprocess

import manifests
import pods

REPLACED = {"image", "command", "entrypoint", "user", "read_only", "restart",
            "stop_grace_period", "mem_limit", "healthcheck", "tmpfs", "shm_size",
            "networks", "cap_drop", "security_opt", "ports"}
JOINED = {"build", "environment", "deploy"}
LISTED = {"profiles", "configs"}


def _depends(value):
    return value if isinstance(value, dict) else {
        one: {"condition": "service_started"} for one in value}


def _target(volume):
    if isinstance(volume, dict):
        return volume["target"]
    return re.sub(r"^\$\{[^}]*\}", "", volume).split(":")[1]


def _ends(volume, variables):
    """(source, target)."""
    if isinstance(volume, dict):
        return (substituted(volume["source"], variables), volume["target"])
    return substituted(volume, variables).split(":")[:2]


def _service(base, override):
    made = dict(base)
    for key, value in override.items():
        if key in REPLACED or key not in made:
            made[key] = value
        elif key in JOINED:
            made[key] = {**made[key], **value}
        elif key in LISTED:
            made[key] = [*made[key], *value]
        elif key == "depends_on":
            made[key] = {**_depends(made[key]), **_depends(value)}
        elif key == "volumes":
            targets = {_target(one) for one in value}
            made[key] = [one for one in made[key]
                         if _target(one) not in targets] + value
        else:
            raise AssertionError(f"what compose makes of {key} is not known")
    return made


def merged(base, override):
    """The services and configs of both files."""
    services = dict(base["services"])
    for name, service in override["services"].items():
        service = dict(service)
        extended = service.pop("extends", None)
        if extended:
            assert extended["file"] == "compose.yaml", extended
            begin = {**base["services"][extended["service"]]}
            # Compose refuses to extend what depends on others.
            assert "depends_on" not in begin, extended
        else:
            begin = services.get(name, {})
        services[name] = _service(begin, service)
    return {"services": services,
            "configs": {**base["configs"], **override.get("configs", {})}}


def substituted(text, variables):
    """With ${NAME:-default} and $$ replaced."""
    def value(match):
        return variables.get(match[1]) or match[2]
    return re.sub(r"\$\{(\w+):-([^}]*)\}", value, text).replace("$$", "$")


class Project:
    """The services of a profile, started in the order of depends_on.

    `folder` is for what their volumes and configs have; `prefix` begins their
    addresses ("127.78.1")."""

    def __init__(self, file, profile, folder, prefix, variables):
        self._file, self._folder = file, pathlib.Path(folder)
        self._variables = variables
        self.children = {}
        self.services = {
            name: one for name, one in file["services"].items()
            if profile in one.get("profiles", []) and
            one.get("deploy", {}).get("replicas") != 0}
        self.addresses = {name: f"{prefix}.{index + 1}" for index, name in
                          enumerate(sorted(self.services))}
        self._hosts = self._folder / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in self.addresses.items()))

    def start(self, environment):
        """`environment`: beside that of the files, for services that end."""
        waiting = dict(self.services)
        while waiting:
            name = next(one for one in waiting
                        if not set(self._before(one)) & set(waiting))
            self._start(name, environment)
            del waiting[name]

    def _before(self, name):
        found = _depends(self.services[name].get("depends_on", {}))
        return {one: how for one, how in found.items() if one in self.services}

    def ends(self, name):
        """Whether others wait for the service to end."""
        return any(self._before(one).get(name, {}).get("condition") ==
                   "service_completed_successfully" for one in self.services)

    def paths(self, name):
        """{folder of the container: folder here}."""
        found = {}
        service = self.services[name]
        for volume in service.get("volumes", []):
            source, target = _ends(volume, self._variables)
            here = pathlib.Path(source) if source.startswith("/") else (
                self._folder / source)
            if source == "packed":
                here = here / name
            if not source.startswith("/"):
                here.mkdir(parents=True, exist_ok=True)
            assert here.exists(), volume
            found[target] = here
        for config in service.get("configs", []):
            here = self._folder / config["source"]
            if not here.exists():
                here.write_text(
                    self._file["configs"][config["source"]]["content"])
            found[config["target"]] = here
        return found

    def _words(self, name):
        service = self.services[name]
        words = [*service.get("entrypoint", []), *service["command"]]
        paths = sorted(self.paths(name).items(), reverse=True)
        made = []
        for word in words:
            word = substituted(str(word), self._variables)
            word = word.replace("0.0.0.0:", self.addresses[name] + ":")
            for inside, here in paths:
                if re.search(rf"(^|=){inside}(/|$)", word):
                    word = word.replace(inside, str(here), 1)
                    break
            made.append(word)
        return made

    def _start(self, name, environment):
        words = self._words(name)
        binaries = {**manifests.BINARIES, "sluice": "services/cli/sluice"}
        binary = pathlib.Path(os.environ["SLUICE_BUILD_DIR"], binaries[words[0]])
        variables = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        paths = self.paths(name)
        for key, value in self.services[name].get("environment", {}).items():
            value = substituted(value, self._variables)
            variables[key] = next(
                (value.replace(inside, str(here)) for inside, here in
                 paths.items() if value.startswith(inside)), value)
        command = [*pods.WITH_HOSTS, self._hosts, binary.absolute(), *words[1:]]
        with open(self._folder / f"{name}.log", "ab") as log:
            if self.ends(name):
                subprocess.run(command, env={**variables, **environment},
                               stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               timeout=120, check=True)
                return
            self.children[name] = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log)

    def stop(self):
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            child.wait(60)

    def logs(self):
        return "".join(f"\n--- {path.name}\n{path.read_text()[-1500:]}"
                       for path in self._folder.glob("*.log"))
