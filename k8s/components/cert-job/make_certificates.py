"""Makes an authority and a certificate for each role, and keeps them as Secrets.

Runs in a pod: openssl makes the files in a temporary folder, and the API server
gets them as Secrets, NAME-ROLE each. A certificate names its role by a URI, so
that a stolen key of one role opens no method of another. The authority's key is
dropped. Secrets that are there, all of one authority, stay; where some are
missing or of another authority, all are made anew.

Environment: SLUICE_NAMESPACE, SLUICE_SECRET (NAME), SLUICE_NAMES (for each role
"ROLE=" and DNS names by commas, roles by spaces), SLUICE_DAYS, SLUICE_API (the
API server), SLUICE_ACCOUNT (folder of the service account's token and ca.crt).
"""

import base64
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

EXTENSIONS = """basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectAltName={names}
"""

# As common/rpc/peer_roles.h has it.
ROLE_URI = "sluice://role/"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(folder, *words):
    done = subprocess.run(["openssl", *words], cwd=folder, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"openssl {' '.join(words)}: {done.stderr}")


def make_authority(folder, days):
    """Writes ca.crt and ca.key into `folder`."""
    openssl(folder, "req", "-x509", *CURVE, "-keyout", "ca.key", "-out",
            "ca.crt", "-days", days, "-subj", "/CN=sluice-ca",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")


def make(folder, role, names, days):
    """Writes ROLE.crt and ROLE.key, by the authority in `folder`."""
    openssl(folder, "req", *CURVE, "-keyout", f"{role}.key", "-out",
            f"{role}.csr", "-subj", f"/CN=sluice-{role}")
    (folder / "extensions").write_text(EXTENSIONS.format(names=",".join(
        [f"URI:{ROLE_URI}{role}", *(f"DNS:{name}" for name in names)])))
    openssl(folder, "x509", "-req", "-in", f"{role}.csr", "-CA", "ca.crt",
            "-CAkey", "ca.key", "-CAcreateserial", "-days", days,
            "-extfile", "extensions", "-out", f"{role}.crt")


def roles_of(text):
    """{role: names} of SLUICE_NAMES."""
    roles = {}
    for part in text.split():
        role, _, names = part.partition("=")
        roles[role] = names.split(",") if names else []
    return roles


def secret(name, namespace, role, folder):
    files = {"tls.crt": f"{role}.crt", "tls.key": f"{role}.key",
             "ca.crt": "ca.crt"}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: base64.b64encode((folder / file).read_bytes()).decode()
                 for key, file in files.items()},
    }


def call(url, account, body=None, method=None):
    """(status, answer) of a GET, or of a POST or `method` with `body`."""
    token = (account / "token").read_text().strip()
    trust = account / "ca.crt"
    context = (ssl.create_default_context(cafile=trust)
               if url.startswith("https:") else None)
    request = urllib.request.Request(
        url, data=json.dumps(body).encode() if body else None, method=method,
        headers={"Authorization": f"Bearer {token}",
                 "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, context=context,
                                    timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code in (404, 409):
            return error.code, {}
        sys.exit(f"{url}: {error.code} {error.read().decode()}")


def found(secrets, names, account):
    """The Secrets that are there, by name."""
    there = {}
    for name in names:
        status, answer = call(f"{secrets}/{name}", account)
        if status == 200:
            there[name] = answer
    return there


def of_one_authority(there, names):
    return set(there) == set(names) and len(
        {one["data"]["ca.crt"] for one in there.values()}) == 1


def main():
    get = os.environ.__getitem__
    namespace, account = get("SLUICE_NAMESPACE"), pathlib.Path(
        get("SLUICE_ACCOUNT"))
    secrets = f"{get('SLUICE_API')}/api/v1/namespaces/{namespace}/secrets"
    roles = roles_of(get("SLUICE_NAMES"))
    names = {f"{get('SLUICE_SECRET')}-{role}": role for role in roles}
    there = found(secrets, names, account)
    if of_one_authority(there, names):
        print(f"{', '.join(names)}: exist, and stay")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make_authority(folder, get("SLUICE_DAYS"))
        for name, role in names.items():
            make(folder, role, roles[role], get("SLUICE_DAYS"))
            body = secret(name, namespace, role, folder)
            if name in there:
                call(f"{secrets}/{name}", account, body, "PUT")
            else:
                call(secrets, account, body)
    # Another Job may have written beside this one.
    if not of_one_authority(found(secrets, names, account), names):
        sys.exit(f"{', '.join(names)}: are of several authorities: "
                 "the next try makes them anew")
    print(f"{', '.join(names)}: made")


if __name__ == "__main__":
    main()
