"""Python's own urllib: one opener for all steps."""

import sys
import urllib.error
import urllib.request

base, scheme, name, password = (sys.stdin.readline().rstrip("\n") for _ in range(4))
passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
passwords.add_password(None, base, name, password)
handlers = {
    "basic": urllib.request.HTTPBasicAuthHandler,
    "digest": urllib.request.HTTPDigestAuthHandler,
}
# No proxy of whoever runs the tests.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handlers[scheme](passwords))
for line in iter(sys.stdin.readline, ""):
    method, path, body = line.rstrip("\n").split(" ", 2)
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(base + path, body.encode() or None, headers, method=method)
    try:
        with opener.open(request, timeout=60) as answer:
            print(answer.status, answer.read().decode(), flush=True)
    except urllib.error.HTTPError as error:
        # One that the handler of Digest made itself has no body; how that shows depends on the version.
        body = error.read() if error.fp else b""
        print(error.code, body.decode() if isinstance(body, bytes) else body, flush=True)
    except (OSError, ValueError) as error:
        print(0, " ".join(repr(error).split()), flush=True)
