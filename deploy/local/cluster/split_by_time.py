"""The layers over the hosts of a fleet by what each host and link can do:
measured there, planned by `sluice plan` on the gateway's host."""

import contextlib
import dataclasses
import json
import secrets
import shlex
import subprocess

import exits
import remote

MEASURE_SECONDS = 600  # for one host
SYSTEM_BYTES = 256 << 20  # or a 32nd: see common/placement
# Prints the bytes that a machine has available.
AVAILABLE = """awk '/^MemAvailable:/ {print $2 * 1024}' /proc/meminfo"""


def applies(fleet, options):
    """Whether hosts are measured: several hosts have stages, the file names no
    layers, and each stage is the only stage of its host and computes on CPUs."""
    with_stages = [host for host in fleet.hosts if host.stages]
    return (options.split_by == "time" and len(with_stages) > 1
            and not any(host.layers or host.stages > 1
                        or set(host.devices()) != {"cpu"}
                        for host in with_stages))


def split(fleet, places, options, say):
    """(The fleet with its hosts in the order of the plan and the layers of each,
    the blocks of the KV cache that the plan has memory for); hosts that the plan
    leaves out have no stage. `places`: a Place by host."""
    hosts = [host for host in fleet.hosts if host.stages]
    say(f"measuring {len(hosts)} hosts, and the links between them")
    memory = {host: _memory(host) for host in hosts}
    # One after another: hosts may share what they run on.
    rates = {host: _rates(host, places[host], options) for host in hosts}
    plan = _plan(fleet, places, options,
                 (hosts, memory, rates, links(hosts, places)))
    made = with_plan(fleet, plan)
    for line in lines(made, plan):
        say(line)
    return made, plan["kv_blocks"]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a host has what is run there: paths on the host."""

    run_dir: str
    binaries: str
    python: tuple  # the words that begin a command of the launcher
    model: str
    threads: int


def machine_memory(text):
    """The bytes of a machine whose stage may take `text` ("24G"): what `sluice
    plan` leaves to the system is more."""
    units = "KMGT"
    number = text.rstrip(units)
    given = float(number) * 1024 ** (1 + units.index(text[-1])
                                     if text != number else 0)
    return int(given) + max(SYSTEM_BYTES, int(given) // 31 + 1)


def _memory(host):
    """Bytes of its machine: for a stage as the file says, else what is available
    now."""
    if host.memory:
        return str(machine_memory(host.memory))
    return str(int(float(remote.run(host, ["sh", "-c", AVAILABLE]))))


def _rates(host, place, options):
    """The host's rates as JSON; measured unless the run folder has them."""
    path = f"{place.run_dir}/rates.json"
    remote.run(host, [
        f"{place.binaries}/sluice", "bench", "machine", "--model", place.model,
        "--weights", options.weights, "--threads", str(place.threads),
        "--rounds", "1", "--json", path, *([] if options.measure_again else ["--keep"])],
        seconds=MEASURE_SECONDS)
    return remote.run(host, ["cat", path])


def links(hosts, places):
    """{(name, name): what link_probe tells} of every pair, in one direction."""
    token = secrets.token_hex(16)
    with contextlib.ExitStack() as ends:
        probes = []
        for host in hosts:
            probes.append(_Probe(host, places[host], token))
            ends.callback(probes[-1].end)
        found = {}
        for at, probe in enumerate(probes):
            for other in hosts[at + 1:]:
                found[probe.host.name, other.name] = probe.ask(
                    [other.address, other.port])
        return found


class _Probe:
    """link_probe on a host; listens where its first stage will."""

    def __init__(self, host, place, token):
        self.host = host
        self._child = subprocess.Popen(
            remote.command_for(host, [*place.python, "host-links"]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        try:
            self.ask({"token": token, "listen": [host.address, host.port]})
        except BaseException:
            self.end()
            raise

    def ask(self, question):
        """The answer to a line. Failure names host and reason."""
        why = "it ended"
        try:
            self._child.stdin.write(json.dumps(question) + "\n")
            self._child.stdin.flush()
            answer = json.loads(self._child.stdout.readline() or "null")
        except (OSError, ValueError) as error:
            answer, why = None, str(error)
        if answer is None:
            self._child.kill()
            why = self._child.stderr.read().strip() or why
        elif "error" not in answer:
            return answer
        else:
            why = answer["error"]
        to = f" to {shlex.join(map(str, question))}" \
            if isinstance(question, list) else ""
        raise exits.Failure(exits.NOT_READY, f"host {self.host.name}: its "
                            f"link{to} cannot be measured: {why}")

    def end(self):
        with contextlib.suppress(OSError):  # it may have ended
            self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        self._child.stderr.close()


def machines_toml(hosts, memory, between):
    """The file of `sluice plan --machines` beside rates-NAME.json of each."""
    text = ""
    for host in hosts:
        text += (f"[[machine]]\nname = {json.dumps(host.name)}\n"
                 f"memory = {json.dumps(memory[host])}\n"
                 f"rates = {json.dumps(f'rates-{host.name}.json')}\n\n")
    for (one, other), link in between.items():
        text += (f"[[links]]\nbetween = {json.dumps([one, other])}\n"
                 f"latency_ms = {link['latency_seconds'] * 1e3:.6f}\n"
                 f"gbit_per_s = {link['bytes_per_second'] * 8e-9:.6f}\n\n")
    return text


def _plan(fleet, places, options, found):
    """What `sluice plan --json` says, on the host that has the gateway: its
    model is there."""
    hosts, memory, rates, between = found
    place = places[fleet.gateway]
    folder = f"{place.run_dir}/plan"
    files = {"machines.toml": (machines_toml(hosts, memory, between).encode(),
                               0o600)}
    for host in hosts:
        files[f"rates-{host.name}.json"] = (rates[host].encode(), 0o600)
    remote.send(fleet.gateway, folder, files)
    words = [f"{place.binaries}/sluice", "plan", place.model, "--machines",
             f"{folder}/machines.toml", "--for", options.plan_for,
             "--weights", options.weights, "--json", f"{folder}/plan.json"]
    for name, value in (("--kv-type", options.kv_type),
                        ("--kv-blocks", options.kv_blocks),
                        ("--context", options.max_context),
                        ("--max-step-tokens", options.max_step_tokens),
                        ("--ranks", options.ranks)):
        words += [name, str(value)] if value is not None else []
    remote.run(fleet.gateway, words, seconds=MEASURE_SECONDS)
    return json.loads(remote.run(fleet.gateway,
                                 ["cat", f"{folder}/plan.json"]))


def with_plan(fleet, plan):
    """The fleet as `sluice plan --json` has it."""
    named = {host.name: host for host in fleet.hosts}
    used = [dataclasses.replace(
        named.pop(stage["machine"]), memory="",
        layers=(f"{stage['first_layer']}-{stage['last_layer']}",))
        for stage in plan["stages"]]
    left = [dataclasses.replace(host, stages=0, memory="")
            for host in named.values()]
    made = {host.name: host for host in used + left}
    return dataclasses.replace(fleet, hosts=tuple(used + left),
                               gateway=made[fleet.gateway.name])


def lines(fleet, plan):
    """What the plan says of each host, for people."""
    stages = {stage["machine"]: stage for stage in plan["stages"]}
    for host in fleet.hosts:
        stage = stages.get(host.name)
        if stage:
            yield (f"host {host.name}: layers {host.layers[0]}, "
                   f"{stage['step_seconds'] * 1e3:.3f} ms of a token")
    for choice in plan["aim"]["choices"]:
        if "seconds" in choice:
            ratio = choice["seconds"] / plan["aim"]["seconds"]
            yield f"{choice['choice']}: {ratio:.2f} times as long"
        else:
            yield f"{choice['choice']}: does not fit"
    left = [host.name for host in fleet.hosts if not host.stages]
    if left:
        yield ("without a stage: " + ", ".join(left) + " (--split-by memory "
               "uses every host)")
