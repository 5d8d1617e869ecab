"""Makes an authority and one certificate, and keeps both as a Secret.

Runs in a pod: openssl makes the files in a temporary folder, and the API server
gets them as a Secret. The authority's key is dropped. A Secret that exists
already stays as it is.

Environment: SLUICE_NAMESPACE, SLUICE_SECRET, SLUICE_NAMES (DNS names by
commas), SLUICE_DAYS, SLUICE_API (the API server), SLUICE_ACCOUNT (folder of the
service account's token and ca.crt).
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


def openssl(folder, *words):
    done = subprocess.run(["openssl", *words], cwd=folder, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"openssl {' '.join(words)}: {done.stderr}")


def make(folder, names, days):
    """Writes tls.crt, tls.key and ca.crt into `folder`."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(folder, "req", "-x509", *curve, "-keyout", "ca.key", "-out",
            "ca.crt", "-days", days, "-subj", "/CN=sluice-ca",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(folder, "req", *curve, "-keyout", "tls.key", "-out", "tls.csr",
            "-subj", "/CN=sluice")
    (folder / "extensions").write_text(EXTENSIONS.format(
        names=",".join(f"DNS:{name}" for name in names)))
    openssl(folder, "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt",
            "-CAkey", "ca.key", "-CAcreateserial", "-days", days,
            "-extfile", "extensions", "-out", "tls.crt")


def secret(name, namespace, folder):
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {file: base64.b64encode((folder / file).read_bytes()).decode()
                 for file in ("tls.crt", "tls.key", "ca.crt")},
    }


def call(url, account, body=None):
    """The status of a GET, or of a POST of `body`."""
    token = (account / "token").read_text().strip()
    trust = account / "ca.crt"
    context = (ssl.create_default_context(cafile=trust)
               if url.startswith("https:") else None)
    request = urllib.request.Request(
        url, data=json.dumps(body).encode() if body else None,
        headers={"Authorization": f"Bearer {token}",
                 "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, context=context,
                                    timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        if error.code in (404, 409):
            return error.code
        sys.exit(f"{url}: {error.code} {error.read().decode()}")


def main():
    get = os.environ.__getitem__
    namespace, name = get("SLUICE_NAMESPACE"), get("SLUICE_SECRET")
    account = pathlib.Path(get("SLUICE_ACCOUNT"))
    secrets = f"{get('SLUICE_API')}/api/v1/namespaces/{namespace}/secrets"
    if call(f"{secrets}/{name}", account) == 200:
        print(f"{name}: exists, and stays")
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        make(folder, get("SLUICE_NAMES").split(","), get("SLUICE_DAYS"))
        status = call(secrets, account, secret(name, namespace, folder))
    print(f"{name}: {'made' if status == 201 else 'another one was faster'}")


if __name__ == "__main__":
    main()
