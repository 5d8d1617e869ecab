"""up, down and supervise."""

import contextlib
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

import exits
import fleet
import gateway_client
import installation
import layout
import model
import options as options_module
import process
import progress
import run_folder
import watch

# `down` waits so long for another command that stops the cluster; stopping takes
# less.
LOCK_SECONDS = 90
# Of the line that says `loaded` (common/stage/load_ranks.cc).
_SHORT = re.compile(r"memory is short: [^)\n]*")


def say(text):
    """Tells a person who may be gone: what we do does not depend on it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def say_nothing(text):
    """In the place of `say`."""


def say_with_time(text):
    """In a log, as the services write theirs."""
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for line in text.splitlines():
        say(f"{stamp} I {line}")


def up(options):
    """Starts the cluster. Until a supervisor or this process watches it, any
    error stops it."""
    stop = watch.StopRequest()
    if options.until_eof:
        watch.stop_at_eof()
    tell = say_nothing if options.quiet else say
    cluster_file = run_folder.ClusterFile(options.run_dir)
    with start_lock(options.run_dir):
        refuse_if_running(cluster_file, options.run_dir)
        secrets = {}
        try:
            secrets["key_file"] = _key_file(options)
            secrets["secret_file"] = _secret_file(options)
            with stop.interrupts():
                document = _new_document(options, model.resolve(
                    options.model, may_fetch=not options.no_install), secrets)
        except BaseException:
            for path in filter(None, secrets.values()):
                pathlib.Path(path).unlink(missing_ok=True)
            raise
        try:
            start(document, cluster_file, tell)
            with stop.interrupts():
                _wait_ready(document, stop, options)
                tell_proposals(options.run_dir, tell)
                greeting = document["url"] if options.quiet \
                    else _greeting(document, options)
            # From here on Ctrl-C does what the greeting says.
            print(greeting, flush=True)
            hand_over(document, cluster_file, options)
        except BaseException:
            stop_cluster(document, cluster_file, stop, tell)
            raise
    if not options.detach:
        _stay(document, cluster_file, stop, options.supervise, tell)
    return exits.OK


def up_hosts(options):
    """The same over the machines of --hosts."""
    stop = watch.StopRequest()
    if options.until_eof:
        watch.stop_at_eof()
    tell = fleet.say_to(sys.stderr)
    cluster_file = run_folder.ClusterFile(options.run_dir)
    with start_lock(options.run_dir):
        refuse_if_running(cluster_file, options.run_dir)
        key_file = _key_file(options)
        with stop.interrupts():
            document = fleet.make_document(options, tell)
        document["key_file"] = key_file
        cluster_file.create(document)  # Before any: a crash leaves no orphan.
        attachment = None
        try:
            with stop.interrupts():
                fleet.start(document, options, tell)
                attachment = fleet.Attachment(document, tell)
                fleet.wait_ready(document, stop, options, tell)
                tell_proposals(options.run_dir, tell)
                greeting = document["url"] if options.quiet \
                    else fleet.greeting(document, options)
            print(greeting, flush=True)  # From here on Ctrl-C drains.
            attachment.end()
            hand_over(document, cluster_file, options)
            if options.detach:  # The way is the supervisor's now.
                with stop.interrupts():
                    fleet.wait_ready(document, stop, options, tell)
        except BaseException:
            if attachment:
                attachment.end()
            try:
                _stop_hosts(document, cluster_file)
            except exits.Failure as failure:
                tell(str(failure))  # Beside what went wrong first.
            raise
    if not options.detach:
        _stay_with_hosts(document, cluster_file, stop)
    return exits.OK


def _stay_with_hosts(document, cluster_file, stop):
    """Keeps the connections until asked to stop, and stops the cluster."""
    attachment = fleet.Attachment(document, fleet.say_to(sys.stderr))
    try:
        while not stop.asked() and run_folder.same_cluster(
                cluster_file.read(), document):
            time.sleep(0.2)
    finally:
        attachment.end()
        with _stop_lock(document["run_dir"]):
            _stop_hosts(document, cluster_file)


def _stop_hosts(document, cluster_file):
    say("draining")
    fleet.stop(document, fleet.say_to(sys.stderr))
    cluster_file.remove(document)
    say("stopped")


def start_lock(run_dir):
    """One `up` or `down` at a time in a run folder; freed when closed."""
    pathlib.Path(run_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = run_folder.take_lock(run_dir)
    if lock is None:
        raise exits.Failure(exits.IN_USE, f"--run-dir {run_dir}: a cluster "
                            "is being started or stopped there")
    return lock


def _key_file(options):
    """A file that only its user reads, with the keys of the environment:
    neither command lines nor cluster.json show them. It becomes the options'
    --api-key-file. None without such keys."""
    keys = os.environ.get(process.KEYS_NAME)
    if not keys:
        return None
    path = pathlib.Path(options.run_dir) / "api-keys"
    _write_secret(path, keys.replace(",", "\n") + "\n")
    options.api_key_file = str(path)
    return options.api_key_file


def _secret_file(options):
    """The same with what the gateways know each other by; None with one."""
    if options.gateways == 1:
        return None
    path = layout.secret_file(options)
    _write_secret(path, os.urandom(32).hex() + "\n")
    return str(path)


def _write_secret(path, text):
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
              "w") as file:
        file.write(text)


def refuse_if_running(cluster_file, run_dir):
    old = cluster_file.read()
    if old is None:
        return
    running = [entry.name for entry in old["processes"] if entry.find()]
    supervisor = old["supervisor"]
    if process.is_ours(supervisor) and supervisor["pid"] != os.getpid():
        running.append(f"its supervisor, pid {supervisor['pid']}")
    if running:
        raise exits.Failure(
            exits.IN_USE, f"--run-dir {run_dir}: a cluster runs there "
            f"already ({', '.join(running)}) at {old['url']}.\n"
            f"Stop it with {installation.command('down')} --run-dir {run_dir}, "
            "or choose another --run-dir")
    if old.get("hosts"):
        raise exits.Failure(
            exits.IN_USE, f"--run-dir {run_dir}: a cluster of "
            f"{len(old['hosts'])} hosts was started there; what is left of it "
            f"ends with {installation.command('down')} --run-dir {run_dir}")
    cluster_file.remove(old)  # Left behind by a crash or a reboot.


def _new_document(options, model_path, secrets):
    """`secrets`: the files to remove with the cluster, by name."""
    processes = layout.make_processes(options, model_path,
                                      options_module.DEFAULT_PORT)
    return {
        "version": 1, "run_dir": options.run_dir, "model": model_path,
        "url": ("https://" if options.http_tls_cert else "http://") + next(entry.addresses[0] for entry in processes
                                if entry.role == "gateway"),
        "created": datetime.datetime.now().astimezone().isoformat(),
        **secrets,
        "options": {k: v for k, v in vars(options).items()
                    if k != "command"},
        "supervisor": {"pid": os.getpid(),
                       "argv": process.command_line(os.getpid())},
        "processes": processes}


def refuse_dead(document):
    """Failure with the log's end for a process that ended while starting."""
    process.reap()
    for entry in document["processes"]:
        if not entry.find():
            raise exits.Failure(
                exits.NOT_READY, f"{entry.name} ended while starting; "
                f"its log {entry.log} ends with:\n{entry.log_tail()}")


def start(document, cluster_file, tell=say):
    cluster_file.create(document)  # Before any: a crash leaves no orphan.
    for entry in document["processes"]:
        pathlib.Path(entry.log).write_text("")
        entry.start()
        tell(f"started {entry.name} (pid {entry.pid}) on "
             f"{entry.addresses[0]}, log {entry.log}")
        cluster_file.create(document)


def _wait_ready(document, stop, options):
    """Returns once /readyz is 200. Shows how the stages load. Fails if a
    process ends."""
    seconds = options.ready_timeout
    try:
        key = gateway_client.first_key(options.api_key_file)
    except (OSError, ValueError):
        key = None  # The gateway says what is wrong with the file, and ends.
    end = time.monotonic() + seconds
    loading = progress.terminal_progress(
        [entry.name for entry in document["processes"]
         if entry.role == "stage"], sys.stderr)
    while True:
        stop.raise_if_asked()
        status, text = gateway_client.call(
            document["url"] + "/readyz", timeout=5, key=key,
            certificate=options.http_tls_cert)
        if status == 200:
            loading.finish()
            return
        refuse_dead(document)
        loading.show(text)
        if time.monotonic() > end:
            raise exits.Failure(exits.NOT_READY, "/readyz was not 200 "
                                f"within {seconds} s (--ready-timeout); "
                                f"logs are in {document['run_dir']}")
        time.sleep(0.1)


def tell_proposals(run_dir, tell):
    """Tells what the stages' logs propose where memory is short."""
    for path in sorted(pathlib.Path(run_dir).glob("*stage-*.log")):
        with contextlib.suppress(OSError):
            found = _SHORT.findall(path.read_text(errors="replace"))
            if found:
                tell(f"{path.stem}: {found[-1]}")


def _greeting(document, options):
    """What a new cluster says of itself, with its first answer."""
    url = document["url"]
    key = gateway_client.first_key(options.api_key_file)
    trust = {"key": key, "certificate": options.http_tls_cert}
    name = gateway_client.served_model(url, **trust)
    path, body, prompt, answer = gateway_client.first_answer(
        url, name, model.first_question(document["model"]), **trust)
    hosts = sum(entry.role == "expert" for entry in document["processes"])
    more = f", {hosts} expert hosts" if hosts else ""
    return "\n".join([
        f"\nready: {url}  (model {name}, {options.stages} stages, "
        f"ranks per stage: {options.ranks}{more})\n\ntry:\n  "
        f"{gateway_client.curl_line(url, path, body, bool(key))}\n",
        f"first prompt: {prompt}\nanswer: {answer.strip()}\n",
        f"stop it with: {installation.command('down')} --run-dir "
        f"{options.run_dir}"
        if options.detach else "Ctrl-C drains and stops it."])


def hand_over(document, cluster_file, options):
    """Hands the cluster to its watcher: this process, a supervisor in the
    background, or none."""
    if options.detach:
        # Without one nothing would hold the way to the hosts.
        wanted = options.supervise or document.get("hosts")
        document["supervisor"] = _start_supervisor(options) if wanted else None
    if not cluster_file.update(document):
        raise exits.Failure(
            exits.UNEXPECTED, f"{cluster_file.path} was removed while the "
            "cluster was started, which is stopped therefore")


def _start_supervisor(options):
    argv = [*installation.launcher("supervise"), "--run-dir", options.run_dir]
    log = pathlib.Path(options.run_dir) / "supervisor.log"
    with open(log, "wb") as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=out, start_new_session=True)
    return {"pid": child.pid, "argv": argv}


def supervise(options):
    """The background half of --detach --supervise."""
    stop = watch.StopRequest()
    cluster_file = run_folder.ClusterFile(options.run_dir)
    document = _read_when_named(cluster_file, os.getpid())
    if document is None:
        raise exits.Failure(exits.UNEXPECTED, f"no cluster of ours in "
                            f"{options.run_dir}")
    if document.get("hosts"):
        _stay_with_hosts(document, cluster_file, stop)
    else:
        _stay(document, cluster_file, stop, True, say_with_time)
    return exits.OK


def _stay(document, cluster_file, stop, restart, tell=say):
    """Watches until asked to stop, and stops the cluster."""
    try:
        watch.watch(cluster_file, document, stop, restart,
                    say if tell is say_nothing else tell)
    finally:
        with _stop_lock(document["run_dir"]):
            stop_cluster(document, cluster_file, stop, tell)


def _stop_lock(run_dir):
    """The lock, or nothing: no cluster runs on because of a lock. `down` does
    not have it while it waits for us."""
    try:
        lock = run_folder.take_lock(run_dir, seconds=10)
    except OSError:
        lock = None  # The folder is gone.
    return lock or contextlib.nullcontext()


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


def stop_cluster(document, cluster_file, stop, tell=say):
    tell("draining")
    process.stop_all(document["processes"], tell, hurry=stop.hurry)
    cluster_file.remove(document)
    tell("stopped")


def down(options):
    """Asks the watcher of the cluster first, without the lock that the watcher
    takes to stop it. Then stops the processes that are left."""
    cluster_file = run_folder.ClusterFile(options.run_dir)
    asked, waiting = None, False
    end = time.monotonic() + LOCK_SECONDS
    while True:
        document = cluster_file.read()
        if asked and not run_folder.same_cluster(document, asked):
            say("stopped")
            return exits.OK
        if document and process.is_ours(document["supervisor"]):
            asked = document
            _ask_supervisor(document["supervisor"])
        elif document is None and not run_folder.lock_path(
                options.run_dir).exists():
            say(f"nothing runs in {options.run_dir}")
            return exits.OK
        elif _stop_if_unwatched(cluster_file, options.run_dir):
            return exits.OK
        elif time.monotonic() >= end:
            raise exits.Failure(
                exits.IN_USE, f"--run-dir {options.run_dir}: another `up` or "
                f"`down` has been at work there for {LOCK_SECONDS} s. End it, "
                "or try again once it is done")
        elif not waiting:
            waiting = True
            say("waiting for another `up` or `down` that is at work in "
                f"{options.run_dir}")


def _ask_supervisor(supervisor):
    say(f"asking the supervisor (pid {supervisor['pid']}) to drain")
    process.terminate(supervisor, seconds=60)


def _stop_if_unwatched(cluster_file, run_dir):
    """False if another process has the lock, or watches the cluster by now."""
    lock = run_folder.take_lock(run_dir, seconds=0.2)
    if lock is None:
        return False
    with lock:
        document = cluster_file.read()
        if document is None:
            say(f"nothing runs in {run_dir}")
            return True
        if process.is_ours(document["supervisor"]):
            return False
        if document.get("hosts"):
            _stop_hosts(document, cluster_file)
            return True
        process.stop_all(document["processes"], say)
        cluster_file.remove(document)
    say("stopped")
    return True
