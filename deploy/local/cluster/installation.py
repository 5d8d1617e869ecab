"""Where the files of this launcher's Sluice are: in a checkout, or below the
prefix of packages or of a bundle (PREFIX/share/sluice/launcher)."""

import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent
IS_INSTALLED = PACKAGE.parts[-3:] == ("share", "sluice", "launcher")
ROOT = pathlib.Path(*PACKAGE.parts[:-3])  # the checkout, or the prefix
# A program of a bundle's own, in the place of the host's: python/bin/python3.
TOOLS = pathlib.Path("lib/sluice")
PYTHON = TOOLS / "python/bin/python3"
# The interpreter takes nothing of its user's: no settings, no packages.
PYTHON_OPTIONS = "-ISB"


def share(name, checkout):
    """A folder of the installation's share/sluice; `checkout`: that of the
    repository which it is made of."""
    return ROOT / "share/sluice" / name if IS_INSTALLED else ROOT / checkout


def demo_model():
    return share("demo-model", "deploy/demo_model/weights")


def command(name):
    """What a person types to run the launcher's command `name`."""
    return f"sluice {name}" if IS_INSTALLED else f"deploy/local/{name}"


def is_bundle():
    """Whether interpreter and libraries are ours, and run on any machine."""
    return IS_INSTALLED and (ROOT / PYTHON).exists()


def tool(name):
    """Path of a program that a bundle brings along; elsewhere its name."""
    ours = ROOT / TOOLS / "bin" / name
    return str(ours) if is_bundle() and ours.exists() else name


def launcher(command_name):
    """The argv that begins a command of the launcher with this interpreter."""
    return [sys.executable, PYTHON_OPTIONS, str(PACKAGE), command_name]


def certificate_file():
    """The authorities that a bundle's programs trust, where the host has none
    in the usual places; None where it has some, or the environment says."""
    if any(os.environ.get(name) for name in ("SSL_CERT_FILE",
                                             "CURL_CA_BUNDLE")):
        return None
    for path in ("/etc/ssl/certs/ca-certificates.crt",
                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                 "/etc/ssl/cert.pem"):
        if os.path.exists(path):
            return path
    ours = ROOT / "share/sluice/ca-certificates.crt"
    return str(ours) if ours.exists() else None
