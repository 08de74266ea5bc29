"""Python's own urllib: one opener for all steps."""

import platform
import ssl
import urllib.error
import urllib.request

import steps


# No proxy of whoever runs the tests.
HANDLERS = [
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=steps.CA)),
    urllib.request.ProxyHandler({}),
]


def log_in(base, scheme, name, password):
    # In docs/reference/clients.md:
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, base, name, password)
    if scheme == "basic":
        handler = urllib.request.HTTPBasicAuthHandler(passwords)
    else:
        handler = urllib.request.HTTPDigestAuthHandler(passwords)
    opener = urllib.request.build_opener(handler, *HANDLERS)
    # Not in it:

    def send(method, url, body, headers):
        try:
            with opener.open(urllib.request.Request(url, body, headers, method=method), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            # One that the handler of Digest made itself has no body; how that shows depends on the version.
            body = error.read() if error.fp else b""
            return error.code, body.decode() if isinstance(body, bytes) else body

    return send


steps.take(platform.python_version(), log_in)
