"""Choosing ports that stay ours while a process is down."""

import random
import socket

import exits


def is_free(port, host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError:
            return False
    return True


def choose(count, host="127.0.0.1"):
    """`count` free ports of `host` outside the range from which the kernel
    takes the ports of outgoing connections: a process that is started again
    finds its port free."""
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
        if is_free(port, host):
            chosen.append(port)
    raise exits.Failure(exits.IN_USE, f"no {count} free ports found")


def gateway_port(asked, default, host="127.0.0.1"):
    """The port of `host` to serve on. `asked` None: `default`, or any that is
    free; 0: any; else exactly that one."""
    if asked:
        if not is_free(asked, host):
            raise exits.Failure(exits.IN_USE, f"--port {asked}: something "
                                "listens there already")
        return asked
    if asked is None and is_free(default, host):
        return default
    return choose(1, host)[0]
