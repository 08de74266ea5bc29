"""httpx: one client for all steps."""

import ssl

import httpx

import steps

# No proxy and no .netrc of whoever runs the tests.
SETTINGS = {"verify": ssl.create_default_context(cafile=steps.CA), "trust_env": False, "timeout": 60}


def log_in(_base, scheme, name, password):
    # In docs/reference/clients.md:
    if scheme == "basic":
        auth = httpx.BasicAuth(name, password)
    else:
        auth = httpx.DigestAuth(name, password)
    client = httpx.Client(auth=auth, **SETTINGS)
    # Not in it:

    def send(method, url, body, headers):
        answer = client.request(method, url, content=body, headers=headers)
        return answer.status_code, answer.text

    return send


steps.take(httpx.__version__, log_in)
