"""Python requests: one session for all steps."""

import requests
from requests.auth import HTTPBasicAuth, HTTPDigestAuth

import steps


def log_in(_base, scheme, name, password):
    # In docs/reference/clients.md:
    session = requests.Session()
    if scheme == "basic":
        session.auth = HTTPBasicAuth(name.encode(), password.encode())
    else:
        session.auth = HTTPDigestAuth(name, password)
    # Not in it:
    session.verify = steps.CA
    # No proxy and no .netrc of whoever runs the tests.
    session.trust_env = False

    def send(method, url, body, headers):
        answer = session.request(method, url, data=body, headers=headers, timeout=60)
        return answer.status_code, answer.text

    return send


steps.take(requests.__version__, log_in)
