"""What a fleet's command runs on each machine: its processes started and left
with a supervisor, and their logs told."""

import argparse
import datetime
import json
import os
import pathlib
import sys
import time

import commands
import exits
import options as options_module
import process
import run_folder
import watch

SETTLE_SECONDS = 1  # a process that ends sooner cannot start
CHUNK = 1 << 16


def parser(name):
    made = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    options_module.add_run_dir(made)
    if name == "host-logs":
        made.add_argument("--since", type=json.loads, required=True,
                          metavar="JSON", help="bytes that are known, by log")
    else:
        made.add_argument("--supervise", default=True,
                          action=argparse.BooleanOptionalAction)
    return made


def start(options):
    """Starts the processes of the document on standard input, each with the
    environment of this machine, and leaves them with a supervisor."""
    options.detach = True
    stop = watch.StopRequest()
    cluster_file = run_folder.ClusterFile(options.run_dir)
    with commands.start_lock(options.run_dir):
        commands.refuse_if_running(cluster_file, options.run_dir)
        document = _document(json.load(sys.stdin), options)
        try:
            commands.start(document, cluster_file)
            with stop.interrupts():
                _settle(document, stop)
            commands.hand_over(document, cluster_file, options)
        except BaseException:
            commands.stop_cluster(document, cluster_file, stop)
            raise
    return exits.OK


def _document(given, options):
    environment = process.passed_environment()
    return {**given, "version": 1, "run_dir": options.run_dir,
            "created": datetime.datetime.now().astimezone().isoformat(),
            "key_file": None, "options": {},
            "supervisor": {"pid": os.getpid(),
                           "argv": process.command_line(os.getpid())},
            "processes": [process.Process(**entry, environment=environment)
                          for entry in given["processes"]]}


def _settle(document, stop):
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end:
        stop.raise_if_asked()
        commands.refuse_dead(document)
        time.sleep(0.05)


def tell_logs(options):
    """Writes {"log", "text"} lines of the run folder's logs, from the bytes
    on that are not known, as they grow. Ends with its reader."""
    folder = pathlib.Path(options.run_dir)
    known = dict(options.since)
    while True:
        for path in sorted(folder.glob("*.log")):
            at = known.get(path.stem, 0)
            size = path.stat().st_size
            if size < at:
                at = 0  # Of a new cluster.
            if size == at:
                continue
            with open(path, "rb") as file:
                file.seek(at)
                data = file.read(CHUNK)
            known[path.stem] = at + len(data)
            # Every byte is a character, so that no piece is cut wrongly.
            print(json.dumps({"log": path.stem, "begin": at,
                              "text": data.decode("latin-1")}), flush=True)
        print("{}", flush=True)  # Fails without a reader.
        time.sleep(0.3)
