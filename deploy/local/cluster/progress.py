"""What `up` shows while the stages load: a bar for each on a terminal, lines
elsewhere."""

import json
import os
import re

BAR = 30  # characters

_LOADING = re.compile(r"loading, (\d+) % of (\d+) MB$")
# It welcomes a gateway once it is loaded, and waits for the others then.
_LOADED = "handshaking"


class Part:
    """A stage, as the gateway's /readyz tells of it."""

    def __init__(self, name):
        self.name = name
        self.percent = 0
        self.megabytes = None  # unknown
        self.why = "starting"  # empty: ready

    def take(self, why):
        """`why` it is not ready; empty if it is."""
        self.why = why.removeprefix("loading: ")  # its state; then its words
        loading = _LOADING.match(self.why)
        if loading:
            self.percent = min(int(loading[1]), 100)
            self.megabytes = int(loading[2])
        elif not why or why == _LOADED:
            self.percent = 100

    @property
    def loading(self):
        return _LOADING.match(self.why) is not None

    def text(self):
        if self.percent == 0 and not self.loading:
            return self.why
        loaded = f"{self.percent:3} %"
        if self.megabytes is not None:
            loaded += f" of {self.megabytes} MB"
        if self.loading:
            return loaded
        return f"{loaded}, {self.why or 'ready'}"


def render(parts, width, rows):
    """Lines of at most `width` characters, one per part; one for all of them
    where they do not fit in `rows`."""
    if len(parts) > rows:
        parts = [_all(parts)]
    names = max(len(part.name) for part in parts)
    lines = []
    for part in parts:
        bar = "#" * (BAR * part.percent // 100)
        lines.append(f"  {part.name:<{names}} [{bar:.<{BAR}}] "
                     f"{part.text()}"[:max(width, 1)])
    return lines


def _all(parts):
    """The parts as one: its share is theirs by size, if all sizes are known."""
    whole = Part(f"{len(parts)} stages")
    sizes = [part.megabytes for part in parts]
    if None in sizes:
        sizes = [1] * len(parts)
    else:
        whole.megabytes = sum(sizes)
    whole.percent = sum(size * part.percent for size, part in
                        zip(sizes, parts)) // max(sum(sizes), 1)
    ready = sum(not part.why for part in parts)
    whole.why = f"{ready} ready" if ready < len(parts) else ""
    return whole


class Progress:
    """Shows parts named `names` on the stream `out`, which is a terminal or
    is not; `size()` gives (columns, rows) of the terminal."""

    def __init__(self, names, out, terminal, size):
        self._parts = {name: Part(name) for name in names}
        self._out = out
        self._terminal = terminal
        self._size = size
        self._drawn = []  # the lines above the cursor
        self._told = {}
        self._why = ""  # what holds the cluster up and is no part's reason

    def show(self, readiness):
        """`readiness`: the body of /readyz; anything else shows nothing."""
        try:
            body = json.loads(readiness)
            waiting = {part["name"].split(" (")[0]: part["why"]
                       for part in body["not_ready"]}
            why = str(body.get("why") or "")
            told = any(reason and reason in why for reason in waiting.values())
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        known = waiting or body.get("ready")
        if not known and not why:
            return
        self._why = "" if told else why
        for name, part in self._parts.items() if known else ():
            part.take(waiting.get(name) or "")
        if self._terminal:
            self._draw()
        else:
            self._tell()

    def finish(self):
        """Every part is ready."""
        self._why = ""
        for part in self._parts.values():
            part.take("")
        if self._drawn:
            self._draw()

    def _draw(self):
        columns, rows = self._size()
        more = [f"  {self._why}"[:max(columns - 1, 1)]] if self._why else []
        lines = render(list(self._parts.values()), columns - 1,
                       rows - 1 - len(more)) + more
        if lines == self._drawn:
            return
        # Over the lines of before, and rid of those that are too many.
        up = f"\x1b[{len(self._drawn)}A" if self._drawn else ""
        self._out.write(up + "\r" + "".join(
            f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._drawn = lines

    def _tell(self):
        """A line for each part of which there is something new; of loading,
        the next tenth."""
        for name, part in self._parts.items():
            new = part.percent // 10 if part.loading else part.why
            if not part.why or self._told.get(name) == new:
                continue
            self._told[name] = new
            self._out.write(f"  {name}: {part.text().strip()}\n")
        if self._why and self._told.get("") != self._why:
            self._out.write(f"  {self._why}\n")
        self._told[""] = self._why
        self._out.flush()


def terminal_progress(names, out):
    """A Progress of `out`: bars if it is a terminal that can move its
    cursor."""
    terminal = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def size():
        try:
            columns, rows = os.get_terminal_size(out.fileno())
        except OSError:
            columns, rows = 0, 0
        return columns or 80, rows or 24
    return Progress(names, out, terminal, size)
