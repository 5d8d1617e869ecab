"""nginx in front of a cluster, as Debian ships it: every timeout its default.

The binary is the system's, or build/nginx's, which tests/run unpacks.
"""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import tempfile

import harness

UNPACKED = harness.ROOT / "build" / "nginx" / "usr" / "sbin" / "nginx"

CONFIG = """
daemon off;
user {user};
worker_processes 1;
pid {folder}/pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {url};
      {options}
    }}
  }}
}}
"""


def binary():
    """Path of an nginx; None without one."""
    return shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin") or (
        str(UNPACKED) if UNPACKED.exists() else None)


class Nginx:
    """A server that passes everything on to `url`; a context manager.

    `options` are directives of its location."""

    def __init__(self, url, options=""):
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-nginx-")
        folder = pathlib.Path(self._folder.name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = folder / "error.log"
        (folder / "nginx.conf").write_text(CONFIG.format(
            folder=folder, port=self._port, url=url, options=options,
            user=pwd.getpwuid(os.getuid()).pw_name))
        self._process = subprocess.Popen(
            [binary(), "-p", folder, "-e", self._log, "-c",
             folder / "nginx.conf"], stdin=subprocess.DEVNULL)
        harness.wait_for(self._answers, 10, "nginx listens")

    def _answers(self):
        if self._process.poll() is not None:
            raise AssertionError(f"nginx ended: {self.log()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def log(self):
        return self._log.read_text(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(30)
        self._folder.cleanup()
