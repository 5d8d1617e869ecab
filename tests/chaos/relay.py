"""A link with faults on demand: a TCP relay before a server.

    python3 relay.py LISTEN-HOST:PORT TARGET-HOST:PORT

It prints "listening", then obeys lines of standard input, each a JSON object
and answered by the line "done", and ends with standard input:

    {"set": {"delay": S, "rate": BYTES, "hold": WAYS}}
                          from now on every piece comes S seconds later, at
                          most so many bytes a second pass each way (0: any),
                          and none passes in the ways held: "in" (towards the
                          server), "out", "both" or "none". What is not named
                          is as without faults. Nothing is lost: what was held
                          passes later, in order.
    {"reset": true}       ends the connections there are with a TCP reset
    {"forget": true}      they stay open and pass nothing any more, as if a
                          router on the way had forgotten them: half-open.
                          New ones pass.
"""

import asyncio
import json
import socket
import struct
import sys

PIECE = 1 << 16  # bytes read at once
CALM = {"delay": 0.0, "rate": 0, "hold": "none"}


class Rules:
    """What holds for all connections now; `changed` is set at each change."""

    def __init__(self):
        self.now = dict(CALM)
        self.changed = asyncio.Event()

    def set(self, rules):
        self.now = {**CALM, **rules}
        self.changed.set()
        self.changed = asyncio.Event()

    def holds(self, way):
        return self.now["hold"] in (way, "both")


class Connection:
    """Two sockets and what passes between them."""

    def __init__(self, rules, client, server):
        self._rules = rules
        self._ends = (client, server)
        self._forgotten = asyncio.Event()

    async def run(self):
        (client_in, client_out), (server_in, server_out) = self._ends
        carried = asyncio.gather(self._carry("in", client_in, server_out),
                                 self._carry("out", server_in, client_out))
        try:
            await carried
        except OSError:
            carried.cancel()  # one end is gone: so is the other

    def forget(self):
        self._forgotten.set()

    def reset(self):
        for _, writer in self._ends:
            raw = writer.get_extra_info("socket")
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                               struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _carry(self, way, reader, writer):
        """Each piece leaves in order, when the rules let it; a queue's bound
        is felt by the sender, as a full link's is."""
        loop = asyncio.get_running_loop()
        queue = asyncio.Queue(maxsize=64)
        deliver = asyncio.ensure_future(self._deliver(way, queue, writer))
        try:
            piece = b"begin"
            while piece:
                piece = await reader.read(PIECE)
                await queue.put((loop.time(), piece))
            await deliver
        finally:
            deliver.cancel()

    async def _deliver(self, way, queue, writer):
        while True:
            came, piece = await queue.get()
            await self._may_pass(way, came)
            if self._forgotten.is_set():
                await asyncio.Event().wait()  # until an end goes
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
            if self._rules.now["rate"]:
                await asyncio.sleep(len(piece) / self._rules.now["rate"])
        if writer.can_write_eof():
            writer.write_eof()

    async def _may_pass(self, way, came):
        loop = asyncio.get_running_loop()
        while not self._forgotten.is_set():
            if self._rules.holds(way):
                await self._rules.changed.wait()
                continue
            rest = came + self._rules.now["delay"] - loop.time()
            if rest <= 0:
                return
            await asyncio.sleep(rest)


class Relay:
    def __init__(self, target):
        self._target = target
        self._rules = Rules()
        self._connections = set()
        self._tasks = set()  # the loop alone would forget those that wait

    async def serve(self, reader, writer):
        to = None
        self._tasks.add(asyncio.current_task())
        try:
            back, to = await asyncio.open_connection(*self._target)
            connection = Connection(self._rules, (reader, writer), (back, to))
            self._connections.add(connection)
            try:
                await connection.run()
            finally:
                self._connections.discard(connection)
        except (OSError, asyncio.CancelledError):
            pass  # the server is not there, or the relay ends
        finally:
            self._tasks.discard(asyncio.current_task())
            for end in (writer, to):
                if end is not None:
                    end.transport.abort()

    def obey(self, order):
        if "set" in order:
            self._rules.set(order["set"])
        for connection in list(self._connections):
            if order.get("reset"):
                connection.reset()
            if order.get("forget"):
                connection.forget()


def split(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


async def main(listen, target):
    relay = Relay(target)
    server = await asyncio.start_server(relay.serve, *listen)
    print("listening", flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async for line in orders:
        relay.obey(json.loads(line))
        print("done", flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(split(sys.argv[1]), split(sys.argv[2])))
