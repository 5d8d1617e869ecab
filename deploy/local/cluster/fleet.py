"""up, down and watching of a cluster over several machines (hosts.toml): each
has a run folder and a supervisor of its own; this machine has their logs, the
certificates and a way to the gateway."""

import argparse
import concurrent.futures
import copy
import datetime
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import certificates
import devices
import exits
import gateway_client
import hosts as hosts_module
import installation
import layout
import ports
import process
import remote
import split_by_time

METRICS_PORTS = 2000  # a stage's metrics are so far behind its port
GATEWAY_PORT = 8080
RETRY_SECONDS = (0.5, 1, 2, 5, 10)
QUESTION = "Hello! Please introduce yourself in one sentence."


def all_of(call, items):
    """The results of `call` for all items at once. The first Failure."""
    with concurrent.futures.ThreadPoolExecutor(max(len(items), 1)) as pool:
        return list(pool.map(call, items))


def make_document(options, say):
    """What cluster.json says of the fleet; every machine is looked at, and
    has what it needs to start."""
    fleet = hosts_module.read(options.hosts, options.model)
    check_devices(fleet, options)
    folders = _folders(fleet, options)
    say(f"looking at {len(fleet.hosts)} hosts")
    found = dict(zip(fleet.hosts, all_of(
        remote.probe, fleet.hosts)))
    _check_machines(found, split_by_time.applies(fleet, options))
    if any(host.ssh != "local" or len(fleet.hosts) > 1
           for host in fleet.hosts):
        _make_certificates(fleet, options)
    run_dirs = {host: os.path.join(found[host]["home"], folders[host.name])
                for host in fleet.hosts}
    all_of(lambda host: _equip(host, run_dirs[host], options, say),
           fleet.hosts)
    if options.api_key_file:
        remote.send(fleet.gateway, run_dirs[fleet.gateway], {
            "api-keys": (pathlib.Path(options.api_key_file), 0o600)})
    _check_versions(fleet, run_dirs)
    if split_by_time.applies(fleet, options):
        places = {host: _place(host, run_dirs[host], found[host])
                  for host in fleet.hosts}
        before = {host.name: host for host in fleet.hosts}
        fleet, blocks = split_by_time.split(fleet, places, options, say)
        options = copy.copy(options)  # what the memory of the hosts allows
        options.kv_blocks = options.kv_blocks or blocks
        run_dirs, found = ({host: facts[before[host.name]]
                            for host in fleet.hosts}
                           for facts in (run_dirs, found))
    return _document(fleet, run_dirs, found, options)


def _place(host, run_dir, facts):
    python = (_python(run_dir, facts), installation.PYTHON_OPTIONS,
              f"{run_dir}/cluster")
    model = os.path.join(facts["home"], host.model.removeprefix("~/"))
    return split_by_time.Place(run_dir, _binaries(host, run_dir), python, model,
                               _threads(host, facts))


def _threads(host, facts):
    """Of each of its stages."""
    return max(1, (host.threads or facts["cores"]) // max(host.stages, 1))


def check_devices(fleet, options):
    """Failure for devices that the file and the options do not have
    together."""
    given = argparse.Namespace(
        numerics=options.numerics, activations=options.activations,
        kv_blocks=options.kv_blocks,
        layers=any(host.layers for host in fleet.hosts))
    wrong = devices.problem(
        "device of its hosts",
        [(host.devices(), []) for host in fleet.hosts], given)
    if wrong:
        raise exits.Failure(exits.USAGE, f"--hosts {options.hosts}: {wrong}")


def _folders(fleet, options):
    """The run folder of each host, below its home folder."""
    name = pathlib.Path(options.run_dir).name
    return {host.name: host.run_dir or
            f".local/state/sluice/fleet-{name}-{host.name}"
            for host in fleet.hosts}


def _check_machines(found, measures):
    """`measures`: the hosts run `sluice`, too."""
    machines = {host.name: facts["machine"] for host, facts in found.items()
                if not host.binaries}
    here = os.uname().machine
    for name, machine in machines.items():
        if machine != here:
            raise exits.Failure(
                exits.NOT_READY, f"host {name} is {machine}, this machine's "
                f"build is {here}: install Sluice there, and name the folder "
                "of its binaries (binaries = \"/usr/bin\")")
    for host, facts in found.items():
        if not facts["has_model"]:
            raise exits.Failure(exits.NO_MODEL, f"host {host.name}: its model "
                                f"{host.model} is not there")
        for program, is_needed in (("stage", True), ("command", measures)):
            if host.binaries and is_needed and not facts[f"has_{program}"]:
                name = {"stage": "sluice-stage", "command": "sluice"}[program]
                raise exits.Failure(exits.NOT_READY, f"host {host.name}: there "
                                    f"is no {name} in {host.binaries}")


def _make_certificates(fleet, options):
    certificates.make(argparse.Namespace(
        folder=str(_tls_folder(options)), days=90, renew=False,
        roles=["gateway", "stage"],
        host=[(host.name, [host.address]) for host in fleet.hosts]))


def _tls_folder(options):
    return pathlib.Path(options.run_dir) / "tls"


def _equip(host, run_dir, options, say):
    """Sends the supervisor's code, the host's certificates and, unless they
    are there, this build's binaries."""
    files = remote.package_files()
    for role in ("gateway", "stage"):
        for ending in ("pem", "key"):
            path = _tls_folder(options) / f"{host.name}-{role}.{ending}"
            if path.exists():
                files[f"tls/{role}.{ending}"] = (path, 0o600)
    if (_tls_folder(options) / "ca.pem").exists():
        files["tls/ca.pem"] = (_tls_folder(options) / "ca.pem", 0o600)
    if not host.binaries:
        folder = _copy(run_dir)
        if "there" not in remote.run(host, [
                "sh", "-c", 'test -e "$0" && echo there || :',
                f"{folder}/whole"]):
            say(f"host {host.name}: copying this "
                f"{'bundle' if installation.is_bundle() else 'build'}'s "
                "binaries")
            remote.send(host, folder, {
                name: (path, 0o600 | path.stat().st_mode & 0o100)
                for name, path in remote.copied().items()} | {"whole": (b"", 0o600)})
    remote.send(host, run_dir, files)


def _copy(run_dir):
    """The folder of a host's copy; copies are told apart by digest."""
    return f"{run_dir}/copy-{remote.digest()}"


def _binaries(host, run_dir):
    """The folder of the host's binaries."""
    return host.binaries or f"{_copy(run_dir)}/bin"


def _python(run_dir, facts):
    return facts["python"] or f"{_copy(run_dir)}/{installation.PYTHON}"


def _check_versions(fleet, run_dirs):
    """One version everywhere: stages of others would refuse each other."""
    def version(host):
        binary = f"{_binaries(host, run_dirs[host])}/sluice-stage"
        told = remote.run(host, [binary, "--version"]).splitlines()
        return ", ".join(line for line in told
                         if not line.startswith("commit "))
    versions = dict(zip(fleet.hosts, all_of(version, fleet.hosts)))
    told = sorted(set(versions.values()))
    if len(told) > 1:
        raise exits.Failure(exits.NOT_READY, "the hosts have different "
                            "versions: " + ", ".join(
                                f"{host.name} {text}"
                                for host, text in versions.items()))


def _document(fleet, run_dirs, found, options):
    shared = copy.copy(options)
    shared.stages = fleet.stages
    sizes = [host.memory for host, _ in fleet.places()]
    shared.stage_memory = ",".join(sizes) if all(sizes) else None
    shared.device = fleet.devices()
    layers = [one for host in fleet.hosts for one in host.layers]
    shared.layers = layers or None
    if shared.max_plans_in_flight is None:
        shared.max_plans_in_flight = 0  # cores are not shared
    processes = {host.name: [] for host in fleet.hosts}
    stages = []
    for index, (host, port) in enumerate(fleet.places()):
        shared.run_dir = run_dirs[host]
        shared.threads = _threads(host, found[host])
        stage = layout.stage(shared, host.model, ("stage", index),
                             f"{_bracketed(host.address)}:{port}",
                             port + METRICS_PORTS)
        stages.append(stage)
        processes[host.name].append(_placed(stage, host, run_dirs[host],
                                            options))
    host = fleet.gateway
    port = options.port or GATEWAY_PORT
    shared.run_dir = run_dirs[host]
    if options.api_key_file:
        shared.api_key_file = f"{run_dirs[host]}/api-keys"
    gateway = layout.gateway(shared, host.model, (stages, []), port)
    processes[host.name].append(_placed(gateway, host, run_dirs[host],
                                        options))
    tunnel = None if host.ssh == "local" else ports.choose(1)[0]
    return {
        "version": 1, "run_dir": options.run_dir, "model": host.model,
        "url": f"http://127.0.0.1:{tunnel}" if tunnel
               else "http://" + gateway.addresses[0],
        "created": datetime.datetime.now().astimezone().isoformat(),
        "key_file": None,
        "options": {k: v for k, v in vars(options).items() if k != "command"},
        "supervisor": {"pid": os.getpid(),
                       "argv": process.command_line(os.getpid())},
        "processes": [],
        "gateway": {"host": host.name, "address": gateway.addresses[0],
                    "tunnel": tunnel},
        "hosts": [{"name": host.name, "ssh": host.ssh,
                   "run_dir": run_dirs[host],
                   "python": _python(run_dirs[host], found[host]),
                   "processes": processes[host.name]}
                  for host in fleet.hosts]}


def _bracketed(address):
    return f"[{address}]" if ":" in address else address


def _placed(entry, host, run_dir, options):
    """The process as its machine starts it."""
    argv = [f"{_binaries(host, run_dir)}/sluice-{entry.role}", *entry.argv[1:]]
    if (_tls_folder(options) / "ca.pem").exists():
        argv += ["--tls-cert", f"{run_dir}/tls/{entry.role}.pem", "--tls-key",
                 f"{run_dir}/tls/{entry.role}.key", "--tls-ca",
                 f"{run_dir}/tls/ca.pem"]
    return {"role": entry.role, "index": entry.index, "argv": argv,
            "addresses": entry.addresses,
            "metrics_address": entry.metrics_address, "log": entry.log}


def start(document, options, say):
    """Starts every host's processes. Failure if one cannot start."""
    def one(entry):
        host = _host_of(entry)
        given = {"processes": entry["processes"], "url": document["url"],
                 "model": document["model"]}
        remote.run(host, _agent(entry, "host-start", *(
            [] if options.supervise else ["--no-supervise"])),
                   json.dumps(given).encode())
        names = ", ".join(f"{one['role']} {one['index']}" if one["role"] !=
                          "gateway" else "gateway"
                          for one in entry["processes"])
        say(f"host {entry['name']}: started {names or 'nothing'}")
    all_of(one, document["hosts"])


def _host_of(entry):
    return hosts_module.Host(name=entry["name"], ssh=entry["ssh"], address="")


def _agent(entry, command, *words):
    return [entry["python"], installation.PYTHON_OPTIONS,
            f"{entry['run_dir']}/cluster", command,
            "--run-dir", entry["run_dir"], *words]


def stop(document, say):
    """Drains and stops: the gateway's host first. Failure names the hosts that
    could not be asked; their processes go on."""
    first = document["gateway"]["host"]
    failed = []

    def one(entry):
        try:
            remote.run(_host_of(entry), _agent(entry, "down"))
            say(f"host {entry['name']}: stopped")
        except exits.Failure as failure:
            failed.append(str(failure))
    all_of(one, [entry for entry in document["hosts"]
                 if entry["name"] == first])
    all_of(one, [entry for entry in document["hosts"]
                 if entry["name"] != first])
    if failed:
        raise exits.Failure(exits.UNEXPECTED, "; ".join(failed) + ". Their "
                            "processes may go on: run `down` again once they "
                            "can be reached")


def greeting(document, options):
    """What a new cluster says of itself, with its first answer."""
    url = document["url"]
    key = gateway_client.first_key(options.api_key_file)
    name = gateway_client.served_model(url, key=key)
    path, body, prompt, answer = gateway_client.first_answer(
        url, name, QUESTION, key=key)
    stages = sum(one["role"] == "stage" for entry in document["hosts"]
                 for one in entry["processes"])
    gateway = document["gateway"]
    return "\n".join([
        f"\nready: {url}  (model {name}, {stages} stages on "
        f"{len(document['hosts'])} hosts; the gateway is "
        f"{gateway['address']} on {gateway['host']})\n\ntry:\n  "
        f"{gateway_client.curl_line(url, path, body, bool(key))}\n",
        f"first prompt: {prompt}\nanswer: {answer.strip()}\n",
        f"stop it with: {installation.command('down')} --run-dir "
        f"{options.run_dir}"
        if options.detach else "Ctrl-C drains and stops it."])


class Attachment:
    """The connections to the hosts, made anew when they break: a copy of every
    log in the run folder (HOST-stage-0.log), and the way to the gateway."""

    def __init__(self, document, say):
        self._document = document
        self._say = say
        self._ended = threading.Event()
        self._children = {}
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._follow, args=(entry,),
                                          daemon=True)
                         for entry in document["hosts"]]
        if document["gateway"]["tunnel"]:
            self._threads.append(threading.Thread(target=self._tunnel,
                                                  daemon=True))
        for thread in self._threads:
            thread.start()

    def end(self):
        self._ended.set()
        with self._lock:
            for child in self._children.values():
                child.terminate()
        for thread in self._threads:
            thread.join(10)

    def _repeat(self, name, argv, use, told):
        """Runs the command again and again. `use` reads what it prints; tells
        of the first of attempts in a row that fail."""
        tries = 0
        while not self._ended.is_set():
            with self._lock:
                if self._ended.is_set():
                    return
                child = subprocess.Popen(argv(), stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE)
                self._children[name] = child
            if use(child):
                if tries:
                    self._say(f"{told} is back")
                tries = 0
                for _ in iter(lambda: use(child), False):
                    pass
            why = child.stderr.read().decode(errors="replace").strip()
            child.wait()
            if self._ended.is_set():
                return
            if not tries:
                self._say(f"{told} is lost ({why or 'it ended'}); its "
                          "processes go on, and it is tried again")
            self._ended.wait(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1

    def _follow(self, entry):
        folder = pathlib.Path(self._document["run_dir"])

        def argv():
            prefix = entry["name"] + "-"
            since = {path.stem[len(prefix):]: path.stat().st_size
                     for path in folder.glob(prefix + "*.log")}
            return remote.command_for(_host_of(entry), _agent(
                entry, "host-logs", "--since", json.dumps(since)))

        def use(child):
            try:  # The last line may be cut.
                piece = json.loads(child.stdout.readline())
            except ValueError:
                child.terminate()
                return False
            self._take(entry, folder, piece)
            return True
        self._repeat(entry["name"], argv, use,
                     f"the connection to host {entry['name']}")

    def _take(self, entry, folder, piece):
        if not piece:
            return
        data = piece["text"].encode("latin-1")
        path = folder / f"{entry['name']}-{piece['log']}.log"
        with open(path, "ab") as log:
            if piece["begin"] == 0:
                log.truncate(0)
            log.write(data)
        if piece["log"] == "supervisor":
            for line in data.decode(errors="replace").splitlines():
                self._say(f"host {entry['name']}: {line}")

    def _tunnel(self):
        gateway = self._document["gateway"]
        entry = next(one for one in self._document["hosts"]
                     if one["name"] == gateway["host"])
        argv = [*remote.ssh_command(), "-o", "ExitOnForwardFailure=yes", "-N",
                "-L", f"127.0.0.1:{gateway['tunnel']}:{gateway['address']}",
                "--", entry["ssh"]]
        self._repeat("tunnel", lambda: argv,
                     lambda child: bool(child.stdout.read(1)),
                     "the way to the gateway")


def wait_ready(document, stop_request, options, say):
    """Returns once /readyz is 200."""
    try:
        key = gateway_client.first_key(options.api_key_file)
    except (OSError, ValueError):
        key = None  # The gateway says what is wrong with the file, and ends.
    end = time.monotonic() + options.ready_timeout
    told = ""
    while True:
        stop_request.raise_if_asked()
        status, text = gateway_client.call(document["url"] + "/readyz",
                                           timeout=5, key=key)
        if status == 200:
            return
        try:
            why = json.loads(text)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            why = ""
        if why and why != told:
            say(told := why)
        if time.monotonic() > end:
            raise exits.Failure(exits.NOT_READY, "/readyz was not 200 within "
                                f"{options.ready_timeout} s "
                                "(--ready-timeout); logs are in "
                                f"{document['run_dir']}")
        time.sleep(0.2)


def say_to(stream=sys.stderr):
    """A `say` for threads: one line at a time."""
    lock = threading.Lock()

    def say(text):
        with lock:
            try:
                print(text, file=stream, flush=True)
            except OSError:
                pass
    return say
