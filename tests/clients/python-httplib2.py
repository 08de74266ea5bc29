"""httplib2: one Http for all steps. It takes the best of what is offered."""

import httplib2

import steps


# No proxy of whoever runs the tests.
SETTINGS = {"ca_certs": steps.CA, "proxy_info": None, "timeout": 60}


def log_in(_base, _scheme, name, password):
    # In docs/reference/clients.md:
    http = httplib2.Http(**SETTINGS)
    http.add_credentials(name, password)
    # Not in it:

    def send(method, url, body, headers):
        answer, text = http.request(url, method, body=body, headers=headers)
        return answer.status, text.decode()

    return send


steps.take(httplib2.__version__, log_in)
