"""A model by its name on a hub: the command `sluice pull` fetches it."""

import os
import re
import subprocess

import exits
import layout

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./+-]+)?(:[\w.-]+)?",
                   re.ASCII)


def is_name(text):
    """Whether `text` has the form of ORG/NAME[@REVISION][:QUANT]."""
    return _NAME.fullmatch(text) is not None


def pull(name, may_fetch):
    """Path of the model in the hub's cache, fetched if `may_fetch`."""
    environment = dict(os.environ)
    if not may_fetch:
        environment["HF_HUB_OFFLINE"] = "1"
    done = subprocess.run([layout.binary("cli", "sluice"), "pull", name],
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env=environment, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    what = (f"--model {name}: there is no such file or folder, and as a "
            "hub's model it could not be had (see above)")
    raise exits.Failure(exits.NO_MODEL if may_fetch else exits.SETUP_FAILED,
                        what if may_fetch else f"missing: {what}")
