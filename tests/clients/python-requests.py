"""Python requests: one session for all steps."""

import sys

import requests
from requests.auth import HTTPBasicAuth, HTTPDigestAuth

base, scheme, name, password = (sys.stdin.readline().rstrip("\n") for _ in range(4))
session = requests.Session()
# No proxy and no .netrc of whoever runs the tests.
session.trust_env = False
session.auth = {"basic": HTTPBasicAuth, "digest": HTTPDigestAuth}[scheme](name, password)
for line in iter(sys.stdin.readline, ""):
    method, path, body = line.rstrip("\n").split(" ", 2)
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        answer = session.request(method, base + path, data=body.encode(), headers=headers, timeout=60)
        print(answer.status_code, answer.text, flush=True)
    except (requests.RequestException, UnicodeError) as error:
        print(0, " ".join(repr(error).split()), flush=True)
