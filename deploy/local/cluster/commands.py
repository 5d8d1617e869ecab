"""up, down and supervise."""

import datetime
import fcntl
import os
import pathlib
import subprocess
import sys
import time

import exits
import gateway_client
import layout
import model
import options as options_module
import process
import progress
import watch

PACKAGE = str(pathlib.Path(__file__).resolve().parent)


def say(text):
    print(text, file=sys.stderr, flush=True)


def up(options):
    if options.supervise and options.detach:
        follow = _hand_over_to_supervisor
    elif options.detach:
        follow = None
    else:
        follow = _stay
    stop = watch.StopRequest()
    with _start_lock(options.run_dir):
        cluster_file = process.ClusterFile(options.run_dir)
        _refuse_if_running(cluster_file, options.run_dir)
        path = model.resolve(options.model)
        document = _start(options, path, cluster_file)
        try:
            ready = _wait_ready(document, stop, options)
        except exits.Failure:
            _stop(document, cluster_file, stop)
            raise
        if not ready:  # Asked to stop while loading.
            _stop(document, cluster_file, stop)
            return exits.OK
    _greet(document, options)
    return follow(document, cluster_file, stop, options) if follow \
        else exits.OK


def _start_lock(run_dir):
    """One `up` or `down` at a time in a run folder; freed when closed."""
    pathlib.Path(run_dir).mkdir(parents=True, exist_ok=True)
    lock = open(pathlib.Path(run_dir) / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise exits.Failure(exits.IN_USE, f"--run-dir {run_dir}: another "
                            "cluster is being started there") from None
    return lock


def _refuse_if_running(cluster_file, run_dir):
    old = cluster_file.read()
    if old is None:
        return
    running = [entry.name for entry in old["processes"] if entry.find()]
    if running:
        raise exits.Failure(
            exits.IN_USE, f"--run-dir {run_dir}: a cluster runs there "
            f"already ({', '.join(running)}) at {old['url']}.\n"
            f"Stop it with deploy/local/down --run-dir {run_dir}, or choose "
            "another --run-dir")
    cluster_file.remove()  # Left behind by a crash or a reboot.


def _start(options, model_path, cluster_file):
    processes = layout.make_processes(options, model_path,
                                      options_module.DEFAULT_PORT)
    document = {
        "version": 1, "run_dir": options.run_dir, "model": model_path,
        "url": "http://" + processes[-1].addresses[0],
        "created": datetime.datetime.now().astimezone().isoformat(),
        "options": {k: v for k, v in vars(options).items()
                    if k != "command"},
        "supervisor": None, "processes": processes}
    for entry in processes:
        pathlib.Path(entry.log).write_text("")
        entry.start()
        say(f"started {entry.name} (pid {entry.pid}) on "
            f"{entry.addresses[0]}, log {entry.log}")
        cluster_file.write(document)  # At once: a crash leaves no orphan.
    return document


def _wait_ready(document, stop, options):
    """True once /readyz is 200, false if asked to stop. Shows how the
    stages load. Fails if a process ends."""
    seconds = options.ready_timeout
    try:
        key = gateway_client.first_key(options.api_key_file)
    except (OSError, ValueError):
        key = None  # The gateway says what is wrong with the file, and ends.
    end = time.monotonic() + seconds
    loading = progress.terminal_progress(
        [entry.name for entry in document["processes"]
         if entry.role == "stage"], sys.stderr)
    while not stop.asked():
        status, text = gateway_client.call(document["url"] + "/readyz",
                                           timeout=5, key=key)
        if status == 200:
            loading.finish()
            return True
        process.reap()
        for entry in document["processes"]:
            if not entry.find():
                raise exits.Failure(
                    exits.NOT_READY, f"{entry.name} ended while starting; "
                    f"its log {entry.log} ends with:\n{entry.log_tail()}")
        loading.show(text)
        if time.monotonic() > end:
            raise exits.Failure(exits.NOT_READY, "/readyz was not 200 "
                                f"within {seconds} s (--ready-timeout); "
                                f"logs are in {document['run_dir']}")
        time.sleep(0.1)
    return False


def _greet(document, options):
    url = document["url"]
    key = gateway_client.first_key(options.api_key_file)
    name = gateway_client.served_model(url, key)
    path, body, prompt, answer = gateway_client.first_answer(url, name, key)
    hosts = sum(entry.role == "expert" for entry in document["processes"])
    more = f", {hosts} expert hosts" if hosts else ""
    print(f"\nready: {url}  (model {name}, {options.stages} stages, "
          f"ranks per stage: {options.ranks}{more})\n\ntry:\n  "
          f"{gateway_client.curl_line(url, path, body, bool(key))}\n")
    print(f"first prompt: {prompt}\nanswer: {answer.strip()}\n")
    if options.detach:
        print(f"stop it with: deploy/local/down --run-dir {options.run_dir}")
    else:
        print("Ctrl-C drains and stops it.")
    sys.stdout.flush()


def _stay(document, cluster_file, stop, options):
    document["supervisor"] = {
        "pid": os.getpid(),
        "argv": process.command_line(os.getpid())}
    cluster_file.write(document)
    watch.watch(cluster_file, document, stop, options.supervise, say)
    _stop(document, cluster_file, stop)
    return exits.OK


def _hand_over_to_supervisor(document, cluster_file, stop, options):
    argv = [sys.executable, "-B", PACKAGE, "supervise", "--run-dir",
            options.run_dir]
    log = pathlib.Path(options.run_dir) / "supervisor.log"
    with open(log, "wb") as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=out, start_new_session=True)
    document["supervisor"] = {"pid": child.pid, "argv": argv}
    cluster_file.write(document)
    return exits.OK


def supervise(options):
    """The background half of --detach --supervise."""
    stop = watch.StopRequest()
    cluster_file = process.ClusterFile(options.run_dir)
    document = _read_when_named(cluster_file, os.getpid())
    if document is None:
        raise exits.Failure(exits.UNEXPECTED, f"no cluster of ours in "
                            f"{options.run_dir}")
    watch.watch(cluster_file, document, stop, True, say)
    _stop(document, cluster_file, stop)
    return exits.OK


def _read_when_named(cluster_file, pid, seconds=10):
    """The document once it names us as its supervisor: from then on we are
    its one writer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        document = cluster_file.read()
        if document and (document["supervisor"] or {}).get("pid") == pid:
            return document
        time.sleep(0.02)
    return None


def _stop(document, cluster_file, stop):
    say("draining")
    process.stop_all(document["processes"], say, hurry=stop.hurry)
    cluster_file.remove()
    say("stopped")


def down(options):
    cluster_file = process.ClusterFile(options.run_dir)
    document = cluster_file.read()
    if document is None:
        say(f"nothing runs in {options.run_dir}")
        return exits.OK
    supervisor = document["supervisor"]
    if process.is_ours(supervisor):
        say(f"asking the supervisor (pid {supervisor['pid']}) to drain")
        process.terminate(supervisor, seconds=60)
        document = cluster_file.read() or document
    process.stop_all(document["processes"], say)
    cluster_file.remove()
    say("stopped")
    return exits.OK
