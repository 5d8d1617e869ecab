"""What a cluster consists of: the command line of every process."""

import os
import pathlib

import exits
import experts
import installation
import options as options_module
import ports
import process
import sockets


def binary(service, name=None):
    """Path of sluice-`service`, or of `name`: of the installation, or in the
    build folder used."""
    name = name or "sluice-" + service
    build = os.environ.get("SLUICE_BUILD_DIR")
    if installation.IS_INSTALLED and not build:
        path, lacks = installation.ROOT / "bin" / name, "is not installed"
    else:
        build = pathlib.Path(build or installation.ROOT / "build/release")
        path = build.absolute() / "services" / service / name
        lacks = "is not built"
    if not os.access(path, os.X_OK):
        raise exits.Failure(exits.NOT_READY, f"{path} {lacks}")
    return str(path)


def make_processes(options, model, default_port):
    """The processes that `options` ask for, addresses chosen."""
    folder = None if options.tcp else sockets.folder(options.run_dir)
    try:
        return _make_processes(options, model, default_port, folder)
    except BaseException:
        if folder:
            sockets.remove_folder(folder, options.run_dir)
        raise


def _make_processes(options, model, default_port, folder):
    """`folder`: of the socket files; None: every process listens on a port."""
    names = experts.host_names(options)
    count = options.stages + options.spares + len(names)
    metrics = ports.choose(count if folder else 2 * count)

    def address(role, index):
        return f"unix:{folder}/{role}-{index}.sock" if folder \
            else f"127.0.0.1:{metrics.pop()}"

    stages = [stage(options, model, ("stage", index),
                     address("stage", index), metrics.pop())
              for index in range(options.stages)]
    spares = [stage(options, model, ("spare", index),
                     address("spare", index), metrics.pop())
              for index in range(options.spares)]
    hosts = [_expert(options, model, (index, name, device),
                     address("expert", index), metrics.pop())
             for index, (name, device) in enumerate(
                 zip(names, experts.devices_of(options, names)))]
    if hosts:
        experts.write_placement(
            options, model, {name: host.addresses[0]
                             for name, host in zip(names, hosts)},
            binary("cli", "sluice"))
    first = ports.gateway_port(options.port, default_port, options.host)
    others = [port for port in ports.choose(options.gateways, options.host)
              if port != first]
    return hosts + stages + spares + gateways(
        options, model, (stages, spares), [first, *others][:options.gateways])


def stage(options, model, place, address, metrics_port):
    """`place`: its role, stage or spare, and index."""
    role, index = place
    run_dir = pathlib.Path(options.run_dir)
    metrics = f"127.0.0.1:{metrics_port}"
    argv = [binary("stage"), "--listen", address, "--model", model,
            *(["--layers", "assigned"] if role == "spare"
              else _layers(options, index)),
            "--ranks", str(options.ranks), "--threads", str(options.threads),
            "--weights", options.weights, "--metrics-listen", metrics,
            "--port-file", str(run_dir / f"{role}-{index}.port")]
    if options.device:
        argv += ["--device", options.device[index % len(options.device)]]
    argv += _valued("--numerics", options.numerics)
    argv += _valued("--activations", options.activations)
    argv += _valued("--isa", options.isa)
    argv += _valued("--packed", options.packed)
    argv += _valued("--packed-gb", options.packed_gb)
    argv += _valued("--packed-memory", options.packed_memory)
    argv += _valued("--kv-type", options.kv_type)
    argv += _valued("--kv-blocks", options.kv_blocks)
    argv += _valued("--max-step-tokens", options.max_step_tokens)
    argv += _valued("--max-context", options.max_context)
    if experts.host_names(options):
        argv += ["--placement", str(experts.placement_file(options))]
    elif role == "stage":
        argv.append("--assignable")
    argv += options.stage_options
    return process.Process(
        role=role, index=index, argv=argv,
        environment=process.passed_environment(), addresses=[address],
        metrics_address=metrics, log=str(run_dir / f"{role}-{index}.log"))


def _layers(options, index):
    if options.layers:
        return ["--layers", options.layers[index]]
    return ["--layers", "auto", "--stage-index", str(index),
            "--num-stages", str(options.stages),
            *_valued("--stage-memory", options.stage_memory)]


def _expert(options, model, host, address, metrics_port):
    """`host`: its index, name and device."""
    index, name, device = host
    run_dir = pathlib.Path(options.run_dir)
    metrics = f"127.0.0.1:{metrics_port}"
    argv = [binary("expert"), "--listen", address, "--model", model,
            "--placement", str(experts.placement_file(options)),
            "--host", name, "--threads", str(options.threads),
            "--weights", options.weights, "--metrics-listen", metrics,
            "--port-file", str(run_dir / f"expert-{index}.port")]
    argv += _valued("--device", device)
    argv += _valued("--numerics", options.numerics)
    argv += _valued("--activations", options.activations)
    argv += _valued("--isa", options.isa)
    argv += _valued("--packed", options.packed)
    argv += _valued("--packed-gb", options.packed_gb)
    argv += _valued("--packed-memory", options.packed_memory)
    argv += options.expert_options
    return process.Process(
        role="expert", index=index, argv=argv,
        environment=process.passed_environment(), addresses=[address],
        metrics_address=metrics, log=str(run_dir / f"expert-{index}.log"))


def gateways(options, model, processes, ports_of):
    """One on each of the ports; with several, each is told of the others."""
    made = [gateway(options, model, processes, port, index)
            for index, port in enumerate(ports_of)]
    for one in made:
        peers = [other.addresses[0] for other in made if other is not one]
        if peers:
            one.argv += ["--peer-gateway", ",".join(peers)]
            one.argv += ["--peer-gateway-secret", str(secret_file(options))]
            one.argv += _valued("--lease", options.lease)
    return made


def secret_file(options):
    """Of what the gateways know each other by."""
    return pathlib.Path(options.run_dir) / "peer-secret"


def gateway(options, model, processes, port, index=0):
    """`processes`: the stages, and the spares."""
    stages, spares = processes
    run_dir = pathlib.Path(options.run_dir)
    name = f"gateway-{index}" if index else "gateway"
    # As it is called by: behind 0.0.0.0 that is another address.
    address = f"{options_module.reachable_host(options.host)}:{port}"
    argv = [binary("gateway"), "--listen", f"{options.host}:{port}", "--stages",
            ",".join(stage.addresses[0] for stage in stages),
            "--model", model, "--drain-timeout", "30",
            "--port-file", str(run_dir / f"{name}.port")]
    if spares:
        argv += ["--spares", ",".join(spare.addresses[0] for spare in spares)]
    argv += _valued("--max-plans-in-flight", _plans_in_flight(options))
    argv += _valued("--max-running", options.max_running)
    argv += _valued("--max-queue", options.max_queue)
    argv += _valued("--max-queue-wait", options.max_queue_wait)
    argv += _valued("--recovery-timeout", options.recovery_timeout)
    argv += _valued("--resplit-after", options.resplit_after)
    argv += _valued("--rejoin-after", options.rejoin_after)
    argv += _valued("--target-itl-ms", options.target_itl_ms)
    argv += _valued("--prefill-chunk", options.prefill_chunk)
    argv += _valued("--tool-format", options.tool_format)
    argv += _valued("--reasoning-format", options.reasoning_format)
    argv += _valued("--api-key-file", options.api_key_file)
    argv += _valued("--model-name", options.model_name)
    argv += ["--any-model-name"] if options.any_model_name else []
    argv += _valued("--max-tokens-overflow", options.max_tokens_overflow)
    argv += _valued("--max-body", options.max_body)
    argv += ["--strict-fields"] if options.strict_fields else []
    argv += _valued("--response-store", options.response_store)
    argv += _valued("--response-store-minutes",
                    options.response_store_minutes)
    argv += ["--access-log"] if options.access_log else []
    argv += _valued("--trusted-proxies", options.trusted_proxies)
    argv += _valued("--http-tls-cert", options.http_tls_cert)
    argv += _valued("--http-tls-key", options.http_tls_key)
    argv += _valued("--cors-origins", options.cors_origins)
    argv += _valued("--allowed-hosts", options.allowed_hosts)
    argv += ["--debug-endpoints"] if options.debug else []
    argv += ["--open"] if options.open else []
    argv += _valued("--kv-blocks", options.kv_blocks)
    if options.no_move_kv:
        argv.append("--no-move-kv")
    if options.no_prefix_cache:
        argv.append("--no-prefix-cache")
    argv += options.gateway_options
    return process.Process(
        role="gateway", index=index, argv=argv,
        environment=process.passed_environment(), addresses=[address],
        metrics_address=address, log=str(run_dir / f"{name}.log"))


def _plans_in_flight(options):
    """None: one per stage."""
    if options.max_plans_in_flight is not None:
        return options.max_plans_in_flight
    cores = len(os.sched_getaffinity(0))
    return 1 if options.stages > 1 and \
        options.stages * options.threads > cores else None


def _valued(flag, value):
    return [] if value is None else [flag, str(value)]
