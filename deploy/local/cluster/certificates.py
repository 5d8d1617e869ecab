"""A cluster's authority, and a certificate per role and host. By the openssl
command, which every Debian has that trusts any authority."""

import argparse
import ipaddress
import os
import pathlib
import re
import subprocess
import tempfile

import exits
import installation

ROLES = ("gateway", "stage", "expert")
# As common/rpc/peer_roles.h has it.
ROLE_URI = "sluice://role/"
AUTHORITY_DAYS = 3650
CONFIGURATION = """[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""
SOON_SECONDS = 7 * 86400


def parser():
    made = argparse.ArgumentParser(
        prog=installation.command("certificates"), allow_abbrev=False,
        description="Makes the authority of a cluster in DIR, once, and a "
        "certificate for each role of each host: HOST-ROLE.pem and .key. "
        "What is there stays, unless --renew is given, the host's addresses "
        "are others, or the certificate ends within 7 days; a process reads "
        "its files again within seconds.")
    made.add_argument("folder", metavar="DIR")
    made.add_argument("--host", action="append", required=True,
                      type=_host, metavar="NAME=ADDRESS[,ADDRESS...]",
                      help="a host, and the names or IPs that others reach it "
                      "by; may be given again")
    made.add_argument("--roles", type=_roles, default=list(ROLES),
                      metavar="ROLE,...", help="default: " + ",".join(ROLES))
    made.add_argument("--days", type=int, default=90,
                      help="of validity (default: %(default)s)")
    made.add_argument("--renew", action="store_true",
                      help="make the hosts' certificates anew, by the same "
                      "authority")
    return made


def _host(text):
    name, _, addresses = text.partition("=")
    names = addresses.split(",")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or \
            not all(re.fullmatch(r"[A-Za-z0-9_.:-]+", one) for one in names):
        raise argparse.ArgumentTypeError(
            f"must be NAME=ADDRESS[,ADDRESS...], got '{text}'")
    return name, names


def _roles(text):
    roles = text.split(",")
    for role in roles:
        if role not in ROLES:
            raise argparse.ArgumentTypeError(
                f"'{role}' is none of {', '.join(ROLES)}")
    return roles


def make(options):
    if not 1 <= options.days <= AUTHORITY_DAYS:
        raise exits.Failure(exits.USAGE, "--days must be between 1 and "
                            f"{AUTHORITY_DAYS}, is {options.days}")
    folder = pathlib.Path(options.folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = [] if (folder / "ca.pem").exists() else [_authority(folder)]
    for name, addresses in options.host:
        for role in options.roles:
            path = folder / f"{name}-{role}.pem"
            if options.renew or not _serves(path, (role, addresses)):
                made.append(_certificate(path, (role, addresses),
                                         options.days))
    return made


def _serves(path, peer):
    """Whether the certificate is there, names the peer's role and addresses
    alone, and does not end soon."""
    if not path.exists():
        return False
    text = _openssl("x509", "-in", str(path), "-noout", "-checkend",
                    str(SOON_SECONDS), "-ext", "subjectAltName", fails=True)
    named = {_alternative(name.partition(":")[2])
             if name.startswith(("IP Address:", "DNS:")) else name
             for name in re.findall(r"(?:IP Address|DNS|URI):[^\s,]+", text)}
    return "will expire" not in text and named == set(_names(peer))


def _names(peer):
    role, addresses = peer
    return [f"URI:{ROLE_URI}{role}", *map(_alternative, addresses)]


def _authority(folder):
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        certificate = f"{draft}/ca.pem"
        _openssl("req", "-x509", *_new_key(draft), "-out", certificate, "-days",
                 str(AUTHORITY_DAYS), "-subj", "/CN=sluice cluster")
        os.replace(f"{draft}/key", folder / "ca.key")
        os.replace(certificate, folder / "ca.pem")
    return folder / "ca.pem"


def _certificate(path, peer, days):
    """Whole or not at all; `peer`: role and addresses."""
    folder = path.parent
    if not (folder / "ca.key").exists():
        raise exits.Failure(exits.UNEXPECTED, f"{folder}/ca.key is missing: "
                            f"{folder}/ca.pem can sign nothing without it")
    with tempfile.TemporaryDirectory(dir=folder) as draft:
        extensions = pathlib.Path(draft, "extensions")
        extensions.write_text(
            f"subjectAltName={','.join(_names(peer))}\n"
            "basicConstraints=critical,CA:FALSE\n"
            "keyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", *_new_key(draft), "-out", f"{draft}/request", "-subj",
                 f"/CN={path.stem}")
        _openssl("x509", "-req", "-in", f"{draft}/request", "-CA",
                 str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"),
                 "-set_serial", "0x" + os.urandom(16).hex(), "-days",
                 str(days), "-extfile", str(extensions), "-out",
                 f"{draft}/certificate")
        os.replace(f"{draft}/key", path.with_suffix(".key"))
        os.replace(f"{draft}/certificate", path)
    return path


def _new_key(draft):
    """Of the command "req": a new key in the folder, and no configuration of the
    machine's, which may have none."""
    config = pathlib.Path(draft, "config")
    config.write_text(CONFIGURATION)
    return ("-config", str(config), "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{draft}/key")


def _alternative(address):
    try:
        return f"IP:{ipaddress.ip_address(address)}"
    except ValueError:
        return "DNS:" + address


def _openssl(*words, fails=False):
    """What it prints; keys are for their user alone. Failure unless it may
    fail."""
    try:
        done = subprocess.run([installation.tool("openssl"), *words],
                              capture_output=True, text=True, umask=0o077,
                              check=False)
    except FileNotFoundError:
        raise exits.Failure(exits.SETUP_FAILED, "the openssl command is "
                            "missing (Debian's package openssl)") from None
    if done.returncode != 0 and not fails:
        raise exits.Failure(exits.UNEXPECTED, f"openssl {words[0]}: "
                            f"{done.stderr.strip()}")
    return done.stdout
