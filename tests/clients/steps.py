"""What the clients in Python have in common: they read what is to be done and say what became of it.

`tests/it/clients/driver.rs` has the other side.
"""

import os
import sys

# The certificate that signs those of the servers.
CA = os.environ["CLIENT_CA"]


def take(version, log_in):
    """`log_in(base, scheme, name, password)` gives a function of method, URL, body and headers.

    That sends one request and gives back the status and the text of the answer.
    """
    lines = (line.rstrip("\n") for line in iter(sys.stdin.readline, ""))
    send = base = None
    for line in lines:
        if line == "VERSION":
            print(version, flush=True)
        elif line == "LOGIN":
            base, scheme, name, password = (next(lines) for _ in range(4))
            send = log_in(base, scheme, name, password)
        else:
            method, path, body = line.split(" ", 2)
            headers = {"Content-Type": "application/json"} if body else {}
            try:
                status, text = send(method, base + path, body.encode() or None, headers)
            except Exception as error:  # Whatever a client raises is its answer.
                status, text = 0, repr(error)
            print(status, text.replace("\n", " "), flush=True)
