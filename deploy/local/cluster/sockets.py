"""Where stages and expert hosts listen: socket files that only their user may
open."""

import os
import pathlib
import re
import stat
import tempfile

import exits

MAX_PATH = 107  # bytes of a socket file's path; the system takes no more
# Addresses stand in lists, in JSON and in gRPC's targets.
_PLAIN = re.compile(r"/[A-Za-z0-9._/@+~-]*")
_PRIVATE = "sluice-"  # what the name of a folder of ours begins with
_LONGEST = "expert-9999.sock"


def folder(run_dir):
    """The run folder, or a new one that is private, where the run folder's
    path is too long or has odd characters."""
    if _fits(os.path.join(run_dir, _LONGEST)):
        return str(run_dir)
    for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(),
                 "/tmp"):
        if not base or not _fits(os.path.join(
                base, _PRIVATE + "12345678", _LONGEST)):
            continue
        try:
            return tempfile.mkdtemp(prefix=_PRIVATE, dir=base)  # mode 0700
        except OSError:
            continue
    raise exits.Failure(exits.UNEXPECTED, f"--run-dir {run_dir}: socket files "
                        f"need a path of at most {MAX_PATH} plain bytes, and "
                        "no folder for temporary files has one; --tcp does "
                        "without them")


def _fits(path):
    return len(os.fsencode(path)) <= MAX_PATH and bool(_PLAIN.fullmatch(path))


def path_of(address):
    """Of "unix:PATH"; None for others."""
    return address[5:] if address.startswith("unix:") else None


def remove(addresses, run_dir):
    """The files of processes that are gone, and the folder that was made for
    them."""
    paths = [pathlib.Path(path) for path in map(path_of, addresses) if path]
    for path in paths:
        for one in (path, path.with_name(path.name + ".lock")):
            try:
                if not stat.S_ISDIR(os.lstat(one).st_mode):
                    one.unlink()
            except OSError:
                pass
    for parent in {path.parent for path in paths}:
        remove_folder(str(parent), run_dir)


def remove_folder(path, run_dir):
    """If it is one that folder() made, and empty."""
    if path == str(run_dir) or not os.path.basename(path).startswith(_PRIVATE):
        return
    try:
        os.rmdir(path)
    except OSError:
        pass
