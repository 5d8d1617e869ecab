"""A run folder's record of its cluster, and the lock of who changes it."""

import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import stat
import sys
import time

import exits
import process
import sockets


def state_folder():
    """The folder of the run folders that have no --run-dir of their own."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser(
        "~/.local/state")
    return os.path.join(state, "sluice")


def link_path(run_dir):
    """The link to a run folder elsewhere, by which `sluice ps` finds it."""
    name = hashlib.sha256(os.fsencode(str(run_dir))).hexdigest()[:16]
    return pathlib.Path(state_folder(), ".elsewhere", name)


def link(run_dir):
    """Makes the link of a run folder outside of the state folder. A cluster
    runs without it, too."""
    if pathlib.Path(run_dir).parent == pathlib.Path(state_folder()):
        return
    path = link_path(run_dir)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.symlink(run_dir, path)
    except FileExistsError:
        pass
    except OSError as error:
        print(f"sluice ps will not list this cluster: {error}",
              file=sys.stderr, flush=True)


def unlink(run_dir):
    try:
        link_path(run_dir).unlink(missing_ok=True)
    except OSError:
        pass  # A link to no cluster; `sluice ps` passes over it.


def _read_trusted(path):
    """The text of a cluster.json. Failure if neither this user nor root has
    written it: it names processes to signal and files to remove."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise exits.Failure(exits.UNEXPECTED,
                                f"{path} is no regular file")
        user = os.geteuid()
        if status.st_uid not in (user, 0):
            raise exits.Failure(
                exits.UNEXPECTED, f"{path} belongs to user {status.st_uid}; "
                f"user {user} trusts a cluster.json of user {user} and of "
                "root alone")
        return file.read()


class ClusterFile:
    """RUN_DIR/cluster.json: written whole, by rename, by one writer. Who no
    longer has the folder leaves the file of the next cluster alone."""

    def __init__(self, run_dir):
        self.path = pathlib.Path(run_dir) / "cluster.json"
        self._linked = False

    def read(self):
        """The document with `processes` as Process, or None. Failure for a
        file of another user."""
        try:
            document = json.loads(_read_trusted(self.path))
            document["supervisor"], document["url"]  # must be there
            fields = {field.name for field in
                      dataclasses.fields(process.Process)}
            document["processes"] = [
                process.Process(**{k: v for k, v in entry.items()
                                   if k in fields})
                for entry in document["processes"]]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise exits.Failure(exits.UNEXPECTED, f"{self.path} is not of "
                                f"ours or damaged ({error!r}); remove it once "
                                "its processes are gone") from None
        return document

    def create(self, document):
        """Under the lock, by `up`: whatever file is there is replaced."""
        self._write(document)
        if not self._linked:
            self._linked = True
            link(self.path.parent)

    def _write(self, document):
        """Whole, by rename, for its user alone."""
        plain = dict(document)
        plain["processes"] = [dataclasses.asdict(entry)
                              for entry in document["processes"]]
        temporary = self.path.with_suffix(f".json.{os.getpid()}")
        try:
            temporary.unlink(missing_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                              0o600), "w") as file:
                file.write(json.dumps(plain, indent=2) + "\n")
            os.replace(temporary, self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def update(self, document):
        """False, and nothing is written, if the file is gone or another
        cluster's."""
        if not self._is_of(document):
            return False
        self._write(document)
        return True

    def remove(self, document):
        """With the socket files of its processes, which are gone, and the
        files of secrets that `up` wrote. Leaves another cluster's file
        alone."""
        ours = self._is_of(document)
        for name in ("key_file", "secret_file"):
            if document.get(name) and (ours or not self.path.exists()):
                pathlib.Path(document[name]).unlink(missing_ok=True)
        if ours:
            sockets.remove([address for entry in document["processes"]
                            for address in entry.addresses],
                           str(self.path.parent))
            self.path.unlink(missing_ok=True)
            unlink(self.path.parent)

    def _is_of(self, document):
        try:
            found = self.read()
        except exits.Failure:
            return False
        return same_cluster(found, document)


def same_cluster(one, other):
    """Whether two documents, each None without a file, are of one cluster."""
    return bool(one and other) and one.get("created") == other.get("created")


def lock_path(run_dir):
    return pathlib.Path(run_dir) / "lock"


def take_lock(run_dir, seconds=0):
    """The lock of an existing folder, an open file, which a command holds while
    it starts or stops the cluster. None if another process has it for
    `seconds`. Closing the file, or the end of the process, frees it."""
    end = time.monotonic() + seconds
    lock = open(lock_path(run_dir), "a")
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= end:
                lock.close()
                return None
        time.sleep(0.05)
