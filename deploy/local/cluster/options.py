"""The command line of `up` and `down`."""

import argparse
import ipaddress
import json
import os
import pathlib
import re
import shlex

import devices
import process
import run_folder

DEFAULT_PORT = 8080

# What `up` gives a process itself, and what to give in its place (empty: nothing);
# --gateway-options, --stage-options and --expert-options refuse them.
_OF_ALL = {"model": "--model", "metrics-listen": "", "port-file": "",
           "config": "", "print": "", "tls-cert": "--hosts",
           "tls-key": "--hosts", "tls-ca": "--hosts"}
OWN_OPTIONS = {
    "gateway": {**_OF_ALL, "listen": "--host and --port", "stages": "--stages",
                "spares": "--spares", "layers": "--layers",
                "peer-gateway": "--gateways", "peer-gateway-secret": "",
                "peer-gateway-ca": "", "drain-timeout": "",
                # `up` asks the gateway itself.
                "api-key-file": "--api-key-file", "open": "--open",
                "http-tls-cert": "--http-tls-cert",
                "http-tls-key": "--http-tls-key"},
    "stage": {**_OF_ALL, "listen": "--tcp or --hosts", "layers": "--layers",
              "num-stages": "--stages", "stage-index": "",
              "stage-memory": "--stage-memory", "assignable": "",
              "placement": "--placement", "ranks": "--ranks", "lead": "",
              "first-rank": "", "follower-ranks": ""},
    "expert": {**_OF_ALL, "listen": "--tcp", "placement": "--placement",
               "experts": "--placement", "host": "--placement"}}


def default_run_dir():
    return os.path.join(run_folder.state_folder(), "default")


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, is {value}")
    return value


def not_negative(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, is {value}")
    return value


def seconds(text):
    value = float(text)
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError(
            f"must be between 0 and 86400, is {text}")
    return value


def layer_ranges(text):
    ranges = text.split(",")
    for one in ranges:
        if not re.fullmatch(r"\d+-\d+", one):
            raise argparse.ArgumentTypeError(
                f"must be first-last for each stage, got '{one}'")
    return ranges


def port_number(text):
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"must be 0 to 65535, is {value}")
    return value


def host_address(text):
    """An IP address, in the brackets that IPv6 has before a port."""
    try:
        found = ipaddress.ip_address(
            "127.0.0.1" if text == "localhost" else text.strip("[]"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be an IP address or localhost, got '{text}'") from None
    return f"[{found}]" if found.version == 6 else str(found)


def is_loopback(host):
    return ipaddress.ip_address(host.strip("[]")).is_loopback


def reachable_host(host):
    """What to call a gateway on this machine by, which listens on `host`."""
    found = ipaddress.ip_address(host.strip("[]"))
    if not found.is_unspecified:
        return host
    return "[::1]" if found.version == 6 else "127.0.0.1"


def _absolute(text):
    return str(pathlib.Path(text).expanduser().absolute())


def words_for(service):
    """A reader of further options of `service`, as one text."""
    def words(text):
        try:
            found = shlex.split(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}: {text}") from None
        if found and not found[0].startswith("-"):
            raise argparse.ArgumentTypeError(
                f"must begin with an option, got '{found[0]}'")
        for word in found:
            if not word.startswith("-"):
                continue
            name = word.lstrip("-").split("=")[0].replace("_", "-")
            for own in (name, name.removeprefix("no")):
                if own in OWN_OPTIONS[service]:
                    instead = OWN_OPTIONS[service][own]
                    raise argparse.ArgumentTypeError(
                        f"--{own} is up's own" +
                        (f": give {instead} of up" if instead else ""))
        return found
    return words


class Describe(argparse.Action):
    """Writes the options as JSON and ends: what `sluice` makes manual pages
    and completions of."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(json.dumps(describe(parser)))
        parser.exit()


def describe(parser):
    """A list of {"name", "value", "about", "choices"}; "value" is empty for an
    option without one. Nothing in it is of this machine."""
    run_dir = "${XDG_STATE_HOME:-~/.local/state}/sluice/default"
    found = []
    for action in parser._actions:  # pylint: disable=protected-access
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        default = run_dir if action.dest == "run_dir" else action.default
        about = (action.help or "") % {**vars(action), "default": default}
        value = "" if action.nargs == 0 else (
            action.metavar or action.dest.upper().replace("_", "-"))
        found += [{"name": name, "value": value, "about": about,
                   "choices": list(action.choices or ())}
                  for name in action.option_strings]
    return found


def add_run_dir(parser):
    parser.add_argument("--describe", action=Describe, nargs=0,
                        help=argparse.SUPPRESS)
    parser.add_argument(
        "--run-dir", default=default_run_dir(), metavar="DIR",
        type=lambda text: str(pathlib.Path(text).expanduser().absolute()),
        help="where cluster.json and the logs are (default: %(default)s); "
        "one cluster per folder")


def planned_for(text):
    """What `sluice plan --for` takes."""
    if text in ("one", "prompt") or (text.isdecimal() and int(text) > 0):
        return text
    raise argparse.ArgumentTypeError(
        f"must be one, prompt or a number of streams, got '{text}'")


def up_parser(name):
    parser = argparse.ArgumentParser(
        prog=name, allow_abbrev=False, description="Builds what is needed and starts a cluster "
        "on this machine: stages and a gateway, each a process of its own.",
        epilog="Exit codes: 0 stopped as asked (with --detach: it is ready), "
        "1 unexpected, 2 bad options, 3 set-up failed or, with --no-install, "
        "something is missing, 4 build failed, "
        "5 no model, 6 a process died or did not become ready, "
        "7 port or run folder in use, 130 told to stop before it was ready.")
    parser.add_argument("--model", metavar="MODEL", help="a Hugging Face "
                        "folder or a GGUF, or a hub's ORG/NAME[@REVISION]"
                        "[:QUANT], fetched once into Hugging Face's cache "
                        "(default: SmolLM2-135M-Instruct, fetched once into "
                        "the user's cache)")
    parser.add_argument("--hosts", metavar="FILE",
                        type=lambda text: str(pathlib.Path(
                            text).expanduser().absolute()),
                        help="the machines of the cluster (hosts.toml), "
                        "reached by ssh, instead of this one; see HOSTS.md")
    parser.add_argument("--split-by", choices=["time", "memory"],
                        default="time", help="what --hosts cuts the layers "
                        "by: time measures each host and link, plans the "
                        "fastest split, and may leave hosts out; memory uses "
                        "every host (default: %(default)s)")
    parser.add_argument("--for", dest="plan_for", default="one",
                        type=planned_for, metavar="one|N|prompt",
                        help="what --split-by time makes fast: one stream, N "
                        "at once, or a prompt (default: %(default)s)")
    parser.add_argument("--measure-again", action="store_true",
                        help="measure hosts that were measured before")
    parser.add_argument("--no-install", action="store_true",
                        help="say what is missing (Debian packages, cargo, "
                        "crates, the default model) and end with 3, instead "
                        "of installing and fetching it")
    parser.add_argument("--stages", type=positive, default=2, metavar="N",
                        help="processes that the layers are split over "
                        "(default: %(default)s)")
    parser.add_argument("--stage-memory", metavar="BYTES,...",
                        help="memory of every stage, as 4G,2G: the layers' "
                        "bytes are split by it (default: evenly)")
    parser.add_argument("--layers", metavar="A-B,C-D,...", type=layer_ranges,
                        help="every stage's layers, by hand")
    parser.add_argument("--spares", type=not_negative, default=0, metavar="N",
                        help="processes that take the place of a stage that "
                        "is lost (default: %(default)s)")
    parser.add_argument("--gateways", type=positive, default=1, metavar="N",
                        help="gateways, of which one leads; the others pass "
                        "requests on to it, and one takes over when it is "
                        "gone (default: %(default)s)")
    parser.add_argument("--ranks", type=positive, default=1, metavar="R",
                        help="tensor-parallel ranks in each stage")
    parser.add_argument("--expert-hosts", type=positive, metavar="E",
                        help="processes that serve the experts of a model "
                        "that has some (default: none, the stages have them)")
    parser.add_argument("--expert-replicas", type=positive, default=1,
                        metavar="R", help="how many of them have an expert "
                        "(default: %(default)s)")
    parser.add_argument("--placement", metavar="FILE",
                        type=lambda text: str(pathlib.Path(
                            text).expanduser().absolute()),
                        help="which expert is where, by hand: one process is "
                        "started for each of its hosts, instead of "
                        "--expert-hosts")
    parser.add_argument("--threads", type=positive, metavar="T",
                        default=len(os.sched_getaffinity(0)),
                        help="of each stage (default: all cores)")
    parser.add_argument("--max-plans-in-flight", type=not_negative,
                        metavar="N",
                        help="how many stages may work at once; 0: all "
                        "(default: all; 1 where their threads are more than "
                        "the cores, since two teams on the same cores wait "
                        "for each other)")
    parser.add_argument("--weights", choices=["auto", "bf16", "f32", "q8_0", "q4_0", "q4_1",
                                 "q5_0", "q5_1"],
                        default="auto", help="what the matrices are kept in "
                        "(default: auto, as the model has them)")
    parser.add_argument("--port", type=port_number, metavar="P",
                        help="of the gateway; 0 chooses one (default: "
                        f"{DEFAULT_PORT}, or another if that is taken)")
    parser.add_argument("--host", type=host_address, default="127.0.0.1",
                        metavar="IP", help="address that the gateway listens "
                        "on; beyond loopback it needs --api-key-file or "
                        "--open (default: %(default)s)")
    add_run_dir(parser)
    parser.add_argument("--tcp", action="store_true",
                        help="stages and expert hosts listen on ports of "
                        "127.0.0.1, which every user of this machine can "
                        "reach (default: on socket files of mode 0600 in the "
                        "run folder)")
    parser.add_argument("--detach", action="store_true",
                        help="return once the cluster is ready")
    parser.add_argument("--until-eof", action="store_true",
                        help="stop the cluster when standard input ends, for "
                        "a program that starts one for itself")
    parser.add_argument("--quiet", action="store_true",
                        help="ask no first prompt, and print the address "
                        "alone once the cluster is ready; standard error has "
                        "progress and failures")
    parser.add_argument("--supervise", default=True,
                        action=argparse.BooleanOptionalAction,
                        help="restart processes that die, which is the "
                        "default, or leave them")
    parser.add_argument("--debug", action="store_true",
                        help="serve /debug/logits and the list of traces, "
                        "which tests and sluice eval ask for")
    passed = parser.add_argument_group("passed through to the processes")
    passed.add_argument("--model-name", metavar="A,B",
                        help="the model's names in requests, the first one "
                        "is shown")
    passed.add_argument("--any-model-name", action="store_true",
                        help="requests may name any model")
    passed.add_argument("--max-tokens-overflow", choices=["refuse", "cut"],
                        help="more tokens asked for than the context leaves: "
                        "refused (the default), or cut to what it leaves")
    passed.add_argument("--max-body", type=positive, metavar="MIB",
                        help="MiB of a request's body")
    passed.add_argument("--strict-fields", action="store_true",
                        help="fields of a request's body that are not known "
                        "are refused, instead of ignored")
    passed.add_argument("--response-store", type=not_negative, metavar="MIB",
                        help="MiB for the responses of each API key, for "
                        "previous_response_id and GET /v1/responses/ID; 0: "
                        "none is kept, which is the default")
    passed.add_argument("--response-store-minutes", type=positive,
                        metavar="M", help="minutes that they are kept, at "
                        "the most")
    passed.add_argument("--access-log", action="store_true",
                        help="the gateway logs a line per request: figures, "
                        "never a text of it")
    passed.add_argument("--trusted-proxies", metavar="A,...",
                        help="addresses and networks of proxies in front of "
                        "the gateway, which tell the client's address")
    passed.add_argument("--max-context", type=positive, metavar="N",
                        help="positions of one sequence")
    passed.add_argument("--cors-origins", metavar="O,...",
                        help="origins whose web pages may call the server, "
                        "or * (default: its own and, without keys, "
                        "those of this machine)")
    passed.add_argument("--allowed-hosts", metavar="H,...",
                        help="names that clients without keys may call the "
                        "server by, besides localhost and IP addresses")
    passed.add_argument("--http-tls-cert", metavar="FILE", type=_absolute,
                        help="PEM file: the certificate that the gateway "
                        "shows to clients; with it the gateway speaks HTTPS")
    passed.add_argument("--http-tls-key", metavar="FILE", type=_absolute,
                        help="PEM file: its key")
    passed.add_argument("--open", action="store_true",
                        help="beyond loopback: requests need no key")
    passed.add_argument("--packed", metavar="auto|off|DIR",
                        type=lambda text: text if text in ("auto", "off")
                        else str(pathlib.Path(text).expanduser().absolute()),
                        help="where packed weights are kept for the next "
                        "start (default: auto, beside the model or in the "
                        "user's cache)")
    passed.add_argument("--packed-gb", type=float, metavar="GB",
                        help="most GB on disk of packed weights of all models "
                        "in one folder (default: for each model what its "
                        "weights take once in memory)")
    passed.add_argument("--packed-memory", choices=["copy", "map"],
                        help="copied into huge pages, which is faster, or the "
                        "file's pages, which processes share (default: copy)")
    passed.add_argument("--device", metavar="auto|D[,D...]",
                        type=devices.names, default=[],
                        help="what stages compute on: cpu, or in a build with "
                        "SLUICE_CUDA cuda:G[,G...], GPUs by number or id with "
                        "a tensor-parallel rank on each; one for all stages, "
                        "or one for each; auto: GPUs in turn, if there are "
                        "any that Sluice runs on, else the CPU; the log says "
                        "which and why (default: cpu)")
    passed.add_argument("--expert-device", metavar="auto|D[,D...]",
                        type=devices.single_names, default=[],
                        help="what hosts of experts compute on, one GPU each: "
                        "one name for all, or one for each (default: cpu)")
    passed.add_argument("--numerics", choices=["auto", "fast", "canonical"],
                        help="canonical: the bits of a CPU, on GPUs too, so "
                        "that both serve one model; fast: a GPU's matrix "
                        "units in BF16, on all stages (default: auto, fast "
                        "on GPUs)")
    passed.add_argument("--activations", choices=["stored", "f32"],
                        help="what weights of blocks (GGUF's, MXFP4) are "
                        "multiplied with: stored, activations of eight bits; "
                        "f32, blocks widened as they are multiplied, as exact "
                        "as the reference, on CPUs (default: stored)")
    passed.add_argument("--kv-type", choices=["auto", "f32", "bf16", "q8_0"],
                        help="what keys and values are kept in; auto: bf16 "
                        "beside quantised weights, which halves their memory, "
                        "else f32 (default: f32; bf16 is proposed where "
                        "memory is short)")
    passed.add_argument("--kv-blocks", type=positive, metavar="N",
                        help="blocks of 16 tokens of the KV cache (default: "
                        "by the memory)")
    passed.add_argument("--max-step-tokens", type=positive, metavar="N",
                        help="tokens of one step of a stage (default: 512; "
                        "2048 on large GPUs with fast numerics)")
    passed.add_argument("--prefill-chunk", type=not_negative, metavar="N",
                        help="tokens of a prompt per step; 0: all (default: half "
                        "of the step's, at least 256)")
    passed.add_argument("--no-prefix-cache", action="store_true",
                        help="compute every prompt anew")
    passed.add_argument("--max-running", type=positive, metavar="N",
                        help="sequences computed at once")
    passed.add_argument("--max-queue", type=not_negative, metavar="N",
                        help="sequences that may wait beyond those")
    passed.add_argument("--max-queue-wait", type=not_negative, metavar="S",
                        help="seconds a request may wait to start")
    passed.add_argument("--recovery-timeout", type=not_negative, metavar="S",
                        help="seconds that requests wait for a lost stage; "
                        "0: they end with it")
    passed.add_argument("--resplit-after", type=seconds, metavar="S",
                        help="seconds without a stage after which the others "
                        "split the layers anew; 0: never")
    passed.add_argument("--rejoin-after", type=seconds, metavar="S",
                        help="seconds that a process must be there without a "
                        "break before the layers are split over it again")
    passed.add_argument("--no-move-kv", action="store_true",
                        help="compute keys and values again when layers move "
                        "by plan")
    passed.add_argument("--lease", type=seconds, metavar="S",
                        help="with --gateways: seconds of a gateway's silence "
                        "after which another one takes over")
    passed.add_argument("--target-itl-ms", type=not_negative, metavar="MS",
                        help="time between tokens beside others' prompts")
    passed.add_argument("--tool-format", metavar="X",
                        help="how the model writes tool calls, where its "
                        "chat template does not tell")
    passed.add_argument("--reasoning-format", metavar="X",
                        help="how it sets reasoning apart, likewise")
    passed.add_argument("--api-key-file", metavar="FILE",
                        type=lambda text: str(pathlib.Path(
                            text).expanduser().absolute()),
                        help="keys that requests must have: lines of "
                        "name:key or key (default: those of the environment's "
                        "SLUICE_API_KEYS, by commas)")
    for service, program in (("gateway", "sluice-gateway"),
                             ("stage", "every sluice-stage"),
                             ("expert", "every sluice-expert")):
        passed.add_argument(
            f"--{service}-options", type=words_for(service), default=[],
            metavar="WORDS", help=f"further options of {program}, as one text "
            f"behind a =: --{service}-options='--peer-timeout 20'")
    passed.add_argument("--isa", metavar="X",
                        help="the CPU's instructions to compute with "
                        "(default: auto, the best there are)",
                        choices=["auto", "avx512vnni", "avx512", "avxvnni",
                                 "avx2", "neoni8mm", "neondot", "neon",
                                 "portable"])
    parser.add_argument("--ready-timeout", type=positive, default=900,
                        metavar="S", help="seconds until /readyz must be "
                        "200 (default: %(default)s)")
    return parser


def check_up(parser, options):
    """Ends with a message if options of `up` contradict each other."""
    if options.until_eof and options.detach:
        parser.error("--until-eof and --detach do not go together: a cluster "
                     "in the background reads no standard input")
    if os.environ.get(process.KEYS_NAME) and options.api_key_file:
        parser.error(f"--api-key-file and {process.KEYS_NAME} are both given: "
                     "take one")
    if not (is_loopback(options.host) or options.api_key_file
            or os.environ.get(process.KEYS_NAME) or options.open):
        parser.error(f"--host {options.host} can be reached from other "
                     "machines: requests need keys there (--api-key-file), "
                     "or --open says that they need none")
    if bool(options.http_tls_cert) != bool(options.http_tls_key):
        parser.error("--http-tls-cert and --http-tls-key go together: a "
                     "certificate and its key")
    if options.hosts:
        for name in ("stages", "stage_memory", "layers", "spares", "gateways",
                     "expert_hosts", "placement", "threads", "tcp", "device",
                     "expert_device", "http_tls_cert", "http_tls_key"):
            if getattr(options, name) != parser.get_default(name):
                parser.error(f"--{name.replace('_', '-')} is for one machine; "
                             "with --hosts the file says what each host has")
    else:
        for option, name in (("--split-by", "split_by"), ("--for", "plan_for"),
                             ("--measure-again", "measure_again")):
            if getattr(options, name) != parser.get_default(name):
                parser.error(f"{option} is for --hosts: the stages of one "
                             "machine share its speed")
    if options.spares and options.expert_hosts:
        parser.error("--spares and --expert-hosts do not go together: a spare "
                     "holds all experts of its layers")
    check_devices(parser, options)
    if options.layers and len(options.layers) != options.stages:
        parser.error(f"--layers has {len(options.layers)} ranges, --stages is "
                     f"{options.stages}")
    begin = 0
    for one in options.layers or ():
        first, last = map(int, one.split("-"))
        if first != begin or last < first:
            parser.error(f"--layers {','.join(options.layers)}: '{one}' must "
                         f"begin at {begin} and not end before")
        begin = last + 1
    if options.layers and options.stage_memory:
        parser.error("--layers says which layers each stage has: "
                     "--stage-memory cannot be given with it")
    sizes = (options.stage_memory or "").count(",") + 1
    if options.stage_memory and sizes != options.stages:
        parser.error(f"--stage-memory has {sizes} sizes, --stages is "
                     f"{options.stages}")
    if options.placement and options.expert_hosts:
        parser.error("--placement says which expert hosts there are: "
                     "--expert-hosts cannot be given with it")
    if options.expert_replicas > (options.expert_hosts or 1):
        parser.error(f"--expert-replicas {options.expert_replicas} needs as "
                     f"many --expert-hosts, got {options.expert_hosts or 0}")


def check_devices(parser, options):
    for name, count, of in (
            ("device", options.stages, "--stages"),
            ("expert_device", options.expert_hosts, "--expert-hosts")):
        given = getattr(options, name)
        # How many hosts a placement has is in its file (experts.py).
        if (name, bool(options.placement)) == ("expert_device", True):
            continue
        option = f"--{name.replace('_', '-')}"
        if given and not count:
            parser.error(f"{option} is for hosts of experts: there are none "
                         "without --expert-hosts or --placement")
        if len(given) not in (0, 1, count):
            parser.error(f"{option} has {len(given)} names, {of} is {count}: "
                         "it takes one name, or one for each")
    if options.hosts:
        return  # Its file has them.
    stages = [(options.device or ["cpu"])[index % max(len(options.device), 1)]
              for index in range(options.stages)]
    hosts = options.expert_device or ["cpu"]
    if not (options.expert_hosts or options.placement):
        hosts = []
    named = " and ".join(
        f"{option} {','.join(given) or 'cpu'}" for option, given in (
            ("--device", options.device),
            ("--expert-device", options.expert_device))
        if option == "--device" or hosts)
    wrong = devices.problem(named, [(stages, hosts)], options)
    if wrong:
        parser.error(wrong)


def run_dir_parser(name, description):
    parser = argparse.ArgumentParser(prog=name, description=description,
                                     allow_abbrev=False)
    add_run_dir(parser)
    return parser
