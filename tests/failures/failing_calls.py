"""Makes the n-th call of a running program fail: an allocation, or a write to a
file. tests/testing/failing_calls.h tells which calls count.
"""

import errno
import mmap
import os
import random
import struct
import tempfile

LIBRARY = os.path.join(os.environ["SLUICE_BUILD_DIR"],
                       "tests/testing/libsluice_failing_calls.so")
LONG = bool(os.environ.get("SLUICE_LONG"))
LARGE = 64 << 10  # bytes of an allocation that no failure of may end a process
ALL = 1 << 63
ALLOCATIONS, WRITES = 1, 2
_FIELDS = ("armed", "kind", "fail_at", "min_bytes", "max_bytes", "error",
           "count", "failed", "quiet", "lasts")


class FailingCalls:
    """What the programs count and fail that run with `environment`."""

    def __init__(self):
        if not os.path.exists(LIBRARY):
            raise FileNotFoundError(LIBRARY)  # else ld.so goes on without it
        self._file = tempfile.NamedTemporaryFile(prefix="sluice-failing-")
        self._file.truncate(mmap.PAGESIZE)
        self._block = mmap.mmap(self._file.fileno(), mmap.PAGESIZE)

    @property
    def environment(self):
        return {"LD_PRELOAD": LIBRARY, "SLUICE_FAILING_CALLS": self._file.name}

    def arm(self, place):
        """From now on counts, and fails, as `place` says."""
        self.disarm()
        for name, value in (("kind", place.kind), ("fail_at", place.number),
                            ("min_bytes", place.min_bytes),
                            ("max_bytes", place.max_bytes),
                            ("error", place.error), ("count", 0),
                            ("failed", 0)):
            self._set(name, value)
        self._set("armed", 1)

    def disarm(self):
        self._set("armed", 0)

    @property
    def count(self):
        return self._get("count")

    @property
    def failed(self):
        return bool(self._get("failed"))

    def _set(self, name, value):
        struct.pack_into("<Q", self._block, 8 * _FIELDS.index(name), value)

    def _get(self, name):
        return struct.unpack_from("<Q", self._block,
                                  8 * _FIELDS.index(name))[0]


class Place:
    """The call number `number` of a kind; 0: none fails, all are counted."""

    def __init__(self, kind, number=0, min_bytes=0, max_bytes=ALL,
                 error=errno.ENOSPC):
        self.kind, self.number, self.error = kind, number, error
        self.min_bytes, self.max_bytes = min_bytes, max_bytes

    def at(self, number):
        errors = (errno.ENOSPC, errno.EIO)
        return Place(self.kind, number, self.min_bytes, self.max_bytes,
                     errors[number % 2])

    def __str__(self):
        if self.kind == WRITES:
            return f"write {self.number} ({errno.errorcode[self.error]})"
        return (f"allocation {self.number} of {self.min_bytes} to "
                f"{self.max_bytes} bytes")


def large_allocations():
    return Place(ALLOCATIONS, min_bytes=LARGE)


def small_allocations():
    return Place(ALLOCATIONS, min_bytes=1, max_bytes=LARGE)


def writes():
    return Place(WRITES)


def places(place, count, most, most_long=None):
    """Of `count` calls those to fail: in the long mode all, or `most_long` at
    random; else `most`, evenly, with the first and the last."""
    if LONG and most_long is None:
        most = count
    elif LONG:
        chosen = random.Random(7).sample(range(1, count + 1),
                                         min(most_long, count))
        return [place.at(number) for number in sorted(chosen)]
    if count <= most:
        return [place.at(number) for number in range(1, count + 1)]
    return [place.at(1 + round(i * (count - 1) / (most - 1)))
            for i in range(most)]


class Tally:
    """How many failures were tried, and what came of them."""

    def __init__(self, what):
        self.what, self.calls, self.tried, self.outcomes = what, 0, 0, {}

    def add(self, outcome):
        outcome = (outcome if isinstance(outcome, str) else
                   f"ended with {outcome}")
        self.tried += 1
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def print(self):
        outcomes = ", ".join(f"{count} {outcome}"
                             for outcome, count in sorted(self.outcomes.items()))
        print(f"{self.what}: {self.calls} calls, {self.tried} failures tried: "
              f"{outcomes}", flush=True)
