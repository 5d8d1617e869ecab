"""Training rows: chats packed behind one another, by epoch and seed."""

import numpy
import torch

OPEN = 32  # rows that are being filled at a time


def pack(lengths, size, order):
    """Lists of chats, each list at most `size` ids long: the chats in the
    order given, each into the fullest open row that takes it."""
    rows, opened = [], []  # opened: [ids left, chats]
    for chat in order:
        need = int(lengths[chat])
        fitting = [row for row in opened if row[0] >= need]
        if fitting:
            row = min(fitting, key=lambda row: row[0])
        else:
            if len(opened) == OPEN:
                full = min(opened, key=lambda row: row[0])
                opened.remove(full)
                rows.append(full[1])
            row = [size, []]
            opened.append(row)
        row[0] -= need
        row[1].append(chat)
    return rows + [chats for _, chats in opened]


class Rows:
    """Batches by number: the same number is always the same batch, so that
    training goes on anywhere. The first epoch takes the chats as they lie in
    the file, so that its beginning needs only theirs; later ones shuffle."""

    def __init__(self, path, size, batch, seed):
        with numpy.load(path) as file:
            self._ids = file["ids"].astype(numpy.int64)
            self._wanted, self._starts = file["wanted"], file["starts"]
        self._size, self._batch, self._seed = size, batch, seed
        self._epochs = {}
        self.tokens = len(self._ids)

    def _epoch(self, number):
        if number not in self._epochs:
            lengths = numpy.diff(self._starts)
            order = numpy.arange(len(lengths))
            if number > 0:
                order = numpy.random.default_rng(
                    [self._seed, number]).permutation(order)
            rows = pack(lengths, self._size, order.tolist())
            whole = len(rows) // self._batch * self._batch
            if whole == 0:
                raise ValueError(f"{len(rows)} rows of chats are less than a "
                                 f"batch of {self._batch}")
            self._epochs = {number: rows[:whole]}
        return self._epochs[number]

    def batch(self, step):
        """ids, positions, documents [B, T] and wanted [B, T]; the unused end
        of a row is a chat of its own that nothing is wanted of."""
        epoch, per_epoch = 0, len(self._epoch(0)) // self._batch
        while step >= per_epoch:
            step -= per_epoch
            epoch += 1
            per_epoch = len(self._epoch(epoch)) // self._batch
        rows = self._epoch(epoch)[step * self._batch:
                                  (step + 1) * self._batch]
        shape = (self._batch, self._size)
        ids, positions = numpy.zeros(shape, int), numpy.zeros(shape, int)
        documents = numpy.full(shape, -1)
        wanted = numpy.zeros(shape, bool)
        for at, row in enumerate(rows):
            begin = 0
            for number, chat in enumerate(row):
                first, last = self._starts[chat], self._starts[chat + 1]
                end = begin + int(last - first)
                ids[at, begin:end] = self._ids[first:last]
                wanted[at, begin:end] = self._wanted[first:last]
                positions[at, begin:end] = numpy.arange(last - first)
                documents[at, begin:end] = number
                begin = end
        return tuple(map(torch.from_numpy, (ids, positions, documents,
                                            wanted)))


def chosen(documents, wanted, ahead):
    """Where in a row a target `ahead` ids later is wanted and of the same
    chat: a mask [B, T - ahead]."""
    return (wanted[:, ahead:]
            & (documents[:, ahead:] == documents[:, :-ahead]))
