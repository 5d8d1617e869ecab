"""Finds near-duplicates: MinHash over runs of three words, in bands.

One hash per run of words; its low bits choose one of 64 slots, each of which
keeps its least (one-permutation MinHash). Two texts are near when they agree
in at least `share` of the slots that either has, which estimates the Jaccard
similarity of their sets of runs. Candidates come from 16 bands of 4 slots.
"""

import zlib

SLOTS = 64
BAND = 4


def signature(text):
    words = text.lower().split()
    least = [None] * SLOTS
    for at in range(max(1, len(words) - 2)):
        run = " ".join(words[at:at + 3])
        value = zlib.crc32(run.encode())
        slot, rest = value % SLOTS, value // SLOTS
        if least[slot] is None or rest < least[slot]:
            least[slot] = rest
    return tuple(least)


def similarity(one, other):
    """The estimated Jaccard similarity of two signatures, 0 to 1."""
    both = equal = 0
    for a, b in zip(one, other):
        if a is not None or b is not None:
            both += 1
            equal += a == b
    return equal / both if both else 1.0


class NearIndex:
    """The texts kept so far; `add` refuses one that is too near to any."""

    def __init__(self, share=0.7):
        self._share = share
        self._kept = []
        self._bands = {}

    def add(self, text):
        """True, and the text is kept; or False: it is a near-duplicate."""
        mine = signature(text)
        keys = [(at, mine[at:at + BAND]) for at in range(0, SLOTS, BAND)]
        seen = {number for key in keys for number in self._bands.get(key, ())}
        if any(similarity(mine, self._kept[number]) >= self._share
               for number in seen):
            return False
        for key in keys:
            if any(value is not None for value in key[1]):
                self._bands.setdefault(key, []).append(len(self._kept))
        self._kept.append(mine)
        return True
