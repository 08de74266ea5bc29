"""HTTPie: one run of `http` for each step, in one process, since it is slow to start."""

import io
import os
import tempfile

import httpie
import httpie.context
import httpie.core

import steps

# No settings of whoever runs the tests.
CONFIG = tempfile.TemporaryDirectory()


def log_in(_base, scheme, name, password):
    def send(method, url, body, _headers):
        # In docs/reference/clients.md:
        line = ["http", f"--auth-type={scheme}", f"--auth={name}:{password}"]
        # Not in it:
        line += ["--ignore-stdin", "--print=hb", "--pretty=none", "--timeout=60", f"--verify={steps.CA}"]
        if body:
            line.append(f"--raw={body.decode()}")
        return run(line + [method, url])

    return send


def run(line):
    out, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with open(os.devnull, encoding="utf-8") as nothing:
        settings = httpie.context.Environment(
            config_dir=CONFIG.name, stdin=nothing, stdout=out, stdout_isatty=False, stderr=said
        )
        httpie.core.main(line, settings)
    out.flush()
    head, _, text = out.buffer.getvalue().decode().replace("\r\n", "\n").partition("\n\n")
    if head.startswith("HTTP/"):
        return int(head.split(" ", 2)[1]), text
    return 0, said.getvalue()


steps.take(httpie.__version__, log_in)
