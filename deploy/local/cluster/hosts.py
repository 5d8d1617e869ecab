"""hosts.toml: the machines of a cluster, what each one has and runs."""

import argparse
import dataclasses
import pathlib
import re
import tomllib

import devices
import exits

FIRST_PORT = 7001  # of a host's stages
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[KMGT]?")


@dataclasses.dataclass(frozen=True)
class Host:
    """One machine. `ssh` is its destination, "local" for this machine;
    `address` what the others call it by."""

    name: str
    ssh: str
    address: str
    stages: int = 1
    port: int = FIRST_PORT
    threads: int = 0  # 0: all cores
    memory: str = ""
    layers: tuple = ()
    device: tuple = ()  # of all its stages, or of each; empty: CPUs
    model: str = ""
    binaries: str = ""  # a folder there; empty: this build's are copied
    run_dir: str = ""

    def devices(self):
        """The device of each of its stages."""
        given = self.device or ("cpu",)
        return [given[index % len(given)] for index in range(self.stages)]


@dataclasses.dataclass(frozen=True)
class Fleet:
    hosts: tuple
    gateway: Host

    @property
    def stages(self):
        return sum(host.stages for host in self.hosts)

    def devices(self):
        """The device of every stage, in the order of the layers; empty if no
        host has any."""
        if not any(host.device for host in self.hosts):
            return []
        return [device for host in self.hosts for device in host.devices()]

    def places(self):
        """(host, its port) of every stage, in the order of the layers."""
        return [(host, host.port + index) for host in self.hosts
                for index in range(host.stages)]


def read(path, model=None):
    """The fleet of the file; `model` is that of hosts which name none.
    Failure for a file that cannot be read or means nothing."""
    try:
        document = tomllib.loads(pathlib.Path(path).read_text("utf-8"))
    except OSError as error:
        raise exits.Failure(exits.USAGE, f"--hosts {path}: {error.strerror}"
                            ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise exits.Failure(exits.USAGE, f"--hosts {path}: {error}") from None
    try:
        return _fleet(document, model)
    except ValueError as error:
        raise exits.Failure(exits.USAGE, f"--hosts {path}: {error}") from None


def _fleet(document, model):
    _known(document, {"model": str, "gateway": str, "hosts": dict}, "the file")
    model = model or document.get("model", "")
    tables = document.get("hosts") or {}
    if not tables:
        raise ValueError("no [hosts.NAME] is in it")
    hosts = tuple(_host(name, table, model) for name, table in tables.items())
    named = {host.name: host for host in hosts}
    gateway = document.get("gateway", hosts[0].name)
    if gateway not in named:
        raise ValueError(f"gateway = '{gateway}' is none of its hosts "
                         f"({', '.join(named)})")
    fleet = Fleet(hosts, named[gateway])
    _check(fleet)
    return fleet


def _known(table, types, where):
    for key, value in table.items():
        if key not in types:
            raise ValueError(f"{where} has a key '{key}'; known are "
                             f"{', '.join(sorted(types))}")
        if not isinstance(value, types[key]) or isinstance(value, bool):
            raise ValueError(f"{where}: {key} must be of type "
                             f"{types[key].__name__}, got {value!r}")


def _host(name, table, model):
    where = f"[hosts.{name}]"
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table")
    if not NAME.fullmatch(name):
        raise ValueError(f"{where}: a name has letters, digits, '.', '_' and "
                         "'-' alone")
    _known(table, {"ssh": str, "address": str, "stages": int, "port": int,
                   "threads": int, "memory": str, "layers": str,
                   "device": str, "model": str, "binaries": str,
                   "run_dir": str}, where)
    ssh = table.get("ssh", name)
    if not ssh or ssh.startswith("-"):
        raise ValueError(f"{where}: ssh = '{ssh}' is no destination")
    address = table.get("address", ssh.rpartition("@")[2])
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", address) or address == "local":
        raise ValueError(f"{where}: address = '{address}' is no name and no "
                         "IP address that the other hosts could call")
    for key, low, high in (("stages", 0, 64), ("port", 1, 65535 - 64),
                           ("threads", 1, 4096)):
        if key in table and not low <= table[key] <= high:
            raise ValueError(f"{where}: {key} must be between {low} and "
                             f"{high}, is {table[key]}")
    if "memory" in table and not SIZE.fullmatch(table["memory"]):
        raise ValueError(f"{where}: memory must be a size as 24G, got "
                         f"'{table['memory']}'")
    layers = tuple(filter(None, table.get("layers", "").split(",")))
    try:
        device = tuple(devices.names(table["device"])
                       if "device" in table else ())
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{where}: device {error}") from None
    made = Host(name=name, ssh=ssh, address=address, layers=layers,
                device=device, **{
        key: table[key] for key in ("stages", "port", "threads", "memory",
                                    "binaries", "run_dir") if key in table},
                model=table.get("model", model))
    if not made.model:
        raise ValueError(f"{where}: no model: a key of the host, of the file, "
                         "or --model")
    return made


def _check(fleet):
    if fleet.stages == 0:
        raise ValueError("no host has a stage")
    taken = {}
    for host, port in fleet.places():
        other = taken.setdefault((host.address, port), host)
        if other is not host:
            raise ValueError(f"[hosts.{host.name}] and [hosts.{other.name}] "
                             f"have one address and port, {host.address}:"
                             f"{port}")
    with_stages = [host for host in fleet.hosts if host.stages]
    for key in ("memory", "layers"):
        having = [host.name for host in with_stages if getattr(host, key)]
        if having and len(having) != len(with_stages):
            raise ValueError(f"{key} is given for {', '.join(having)} alone: "
                             "for all hosts with stages, or for none")
    begin = 0
    for host in with_stages:
        if len(host.device) not in (0, 1, host.stages):
            raise ValueError(f"[hosts.{host.name}]: device has "
                             f"{len(host.device)} names, stages is "
                             f"{host.stages}: it takes one name, or one for "
                             "each")
        if host.layers and host.memory:
            raise ValueError(f"[hosts.{host.name}]: layers says what its "
                             "stages have, memory cannot be given with it")
        if host.layers and len(host.layers) != host.stages:
            raise ValueError(f"[hosts.{host.name}]: layers has "
                             f"{len(host.layers)} ranges, stages is "
                             f"{host.stages}")
        for one in host.layers:
            match = re.fullmatch(r"(\d+)-(\d+)", one)
            if not match or int(match[1]) != begin or int(match[2]) < begin:
                raise ValueError(f"[hosts.{host.name}]: layers '{one}' must "
                                 f"begin at {begin}, as first-last")
            begin = int(match[2]) + 1
