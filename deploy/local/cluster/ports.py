"""Choosing ports that stay ours while a process is down."""

import random
import socket

import exits


def is_free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(count):
    """`count` free ports outside the range from which the kernel takes the
    ports of outgoing connections: a process that is started again finds its
    port free."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as text:
            low, high = (int(word) for word in text.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999
    candidates = [port for port in range(10240, 65000)
                  if not low <= port <= high]
    if len(candidates) < 2000:
        candidates = list(range(10240, 65000))
    chosen = []
    for port in random.SystemRandom().sample(candidates, 2000):
        if len(chosen) == count:
            return chosen
        if is_free(port):
            chosen.append(port)
    raise exits.Failure(exits.IN_USE, f"no {count} free ports found")


def gateway_port(asked, default):
    """The port to serve on. `asked` None: `default`, or any that is free;
    0: any; else exactly that one."""
    if asked:
        if not is_free(asked):
            raise exits.Failure(exits.IN_USE, f"--port {asked}: something "
                                "listens there already")
        return asked
    if asked is None and is_free(default):
        return default
    return choose(1)[0]
