"""httplib2: one Http for all steps. It takes the best of what is offered."""

import httplib2

import steps


def log_in(_base, _scheme, name, password):
    # No proxy of whoever runs the tests.
    http = httplib2.Http(ca_certs=steps.CA, proxy_info=None, timeout=60)
    # In docs/clients.md:
    http.add_credentials(name, password)
    # Not in it:

    def send(method, url, body, headers):
        answer, text = http.request(url, method, body=body, headers=headers)
        return answer.status, text.decode()

    return send


steps.take(httplib2.__version__, log_in)
