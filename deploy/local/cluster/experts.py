"""Which expert hosts a cluster has, and the file that says what they serve."""

import json
import pathlib
import subprocess

import exits


def host_names(options):
    """Names of the expert hosts that `options` ask for, in order."""
    if not options.placement:
        return [f"e{index}" for index in range(options.expert_hosts or 0)]
    return [host["name"] for host in _read(options.placement)["hosts"]]


def devices_of(options, names):
    """What each of the hosts computes on; None: what it does by itself."""
    given = options.expert_device
    if len(given) not in (0, 1, len(names)):
        raise exits.Failure(
            exits.USAGE, f"--expert-device has {len(given)} names, "
            f"{options.placement or '--expert-hosts'} has {len(names)} hosts: "
            "it takes one name, or one for each")
    return [given[index % len(given)] if given else None
            for index in range(len(names))]


def placement_file(options):
    """Of the running cluster, with the addresses that were chosen."""
    return pathlib.Path(options.run_dir) / "placement.json"


def write_placement(options, model, addresses, sluice):
    """Writes placement_file: the one given by hand with `addresses` (by
    host's name) for its own, or one that `sluice plan` makes."""
    path = placement_file(options)
    if options.placement:
        document = _read(options.placement)
        for host in document["hosts"]:
            host["address"] = addresses[host["name"]]
        path.write_text(json.dumps(document, indent=1) + "\n")
        return
    hosts = ",".join(f"{name}={address}"
                     for name, address in addresses.items())
    plan = subprocess.run(
        [sluice, "plan", model, "--hosts", hosts, "--replicas",
         str(options.expert_replicas), "--out", str(path)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if plan.returncode != 0:
        raise exits.Failure(exits.USAGE, f"--expert-hosts "
                            f"{options.expert_hosts}: {plan.stderr.strip()}")


def _read(path):
    """A placement as far as its hosts' names go; the stages check the rest."""
    try:
        document = json.loads(pathlib.Path(path).read_text())
        names = [host["name"] for host in document["hosts"]]
    except OSError as error:
        raise exits.Failure(
            exits.USAGE, f"--placement {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise exits.Failure(exits.USAGE, f"--placement {path} has no list of "
                            f"hosts with names ({error!r})") from None
    if not names or len(set(names)) < len(names) or not all(
            isinstance(name, str) for name in names):
        raise exits.Failure(exits.USAGE, f"--placement {path}: hosts must "
                            f"have names, each its own, got {names}")
    return document
