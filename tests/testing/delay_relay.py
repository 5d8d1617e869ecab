"""A link that is as long as one asks: a TCP relay that passes every byte on
after a delay, as many bytes at once as come. python3 delay_relay.py
LISTEN-HOST:PORT TARGET-HOST:PORT MILLISECONDS (one way)."""

import asyncio
import sys


async def carry(reader, writer, delay):
    """Each piece leaves `delay` seconds after it came, in order."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue(maxsize=4096)

    async def deliver():
        while True:
            due, piece = await queue.get()
            await asyncio.sleep(max(0, due - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def take():
        piece = b"begin"
        while piece:
            piece = await reader.read(1 << 16)
            await queue.put((loop.time() + delay, piece))

    await asyncio.gather(take(), deliver())


def split(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


async def relay(listen, target, delay):
    async def serve(reader, writer):
        to = None
        try:
            back, to = await asyncio.open_connection(*target)
            await asyncio.gather(carry(reader, to, delay),
                                 carry(back, writer, delay))
        except OSError:
            pass  # One end is gone: so is the other, below.
        finally:
            for end in (writer, to):
                if end is not None:
                    end.transport.abort()

    server = await asyncio.start_server(serve, *listen)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(split(sys.argv[1]), split(sys.argv[2]),
                      float(sys.argv[3]) / 1000))
