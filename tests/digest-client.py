#!/usr/bin/env python3
"""A Digest client, written from RFC 7616 and RFC 2617 alone, as a judge of the server.

One line of JSON in for each request, one out. What the RFCs leave open, and what clients in use do
beside them, is chosen by the seed: the order of parameters, spaces, quotes, ways to write a name.
src/auth/digest/tests/clients.rs runs it.
"""

import hashlib
import json
import random
import re
import sys

HASHES = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}


def digest(algorithm, *parts):
    parts = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return HASHES[algorithm](b":".join(parts)).hexdigest()


def challenges(lines):
    """The challenges of Digest, each a dictionary."""
    found = []
    for line in lines:
        for part in re.split(r"(?:^|, )Digest ", line)[1:]:
            pairs = re.findall(r'(\w+)=(?:"([^"]*)"|([^",\s]+))', part)
            found.append({name: quoted or token for name, quoted, token in pairs})
    return found


def quoted(text):
    return b'"' + re.sub(r'(["\\])', r"\\\1", text).encode() + b'"'


def extended(text):
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$&+-.^_`|~"
    letters = ["%c" % byte if byte in plain else "%%%02X" % byte for byte in text.encode()]
    return ("UTF-8''" + "".join(letters)).encode()


def user(choose, request, algorithm, realm):
    """The parameters that say who asks, and how that was done."""
    name = request["name"]
    kind = choose.choice(["name", "extended", "hash"])
    if kind == "hash":
        flag = choose.choice([b"true", b"TRUE"])
        return kind, [(b"username", quoted(digest(algorithm, name, realm))), (b"userhash", flag)]
    if kind == "extended":
        return kind, [(b"username*", extended(name))]
    return kind, [(b"username", quoted(name))]


def answer(request):
    choose = random.Random(request["seed"])
    challenge = choose.choice(challenges(request["challenges"]))
    algorithm, realm, nonce = challenge["algorithm"], challenge["realm"], challenge["nonce"]
    method, target = request["method"], request["target"]
    uri = target if choose.random() < 0.8 else "http://LOCALHOST:8080" + target
    qops = ["auth", "auth-int"] + ([None] if request["legacy"] and algorithm == "MD5" else [])
    qop = choose.choice(qops)
    nc = "%08x" % choose.choice([1, 2, 0xFFFFFFFF, choose.randint(1, 0xFFFFFFFF)])
    nc = choose.choice([nc, nc.upper()])
    cnonce = "".join(choose.choice("abcXYZ0189+/=\"\\ ,") for _ in range(choose.randint(1, 40)))

    secret = digest(algorithm, request["name"], realm, request["password"])

    def response(method, body):
        covered = [method, uri]
        if qop == "auth-int":
            covered.append(digest(algorithm, body))
        over = digest(algorithm, *covered)
        if qop is None:
            return digest(algorithm, secret, nonce, over)
        return digest(algorithm, secret, nonce, nc, cnonce, qop, over)

    kind, parameters = user(choose, request, algorithm, realm)
    either = lambda text: choose.choice([text.encode(), quoted(text)])
    parameters += [
        (b"realm", quoted(realm)),
        (b"nonce", quoted(nonce)),
        (b"uri", quoted(uri)),
        (b"response", quoted(response(method, request["body"]))),
        (b"opaque", quoted(challenge["opaque"])),
    ]
    if algorithm != "MD5" or choose.random() < 0.7:
        parameters.append((b"algorithm", either(algorithm)))
    information = []
    if qop is not None:
        parameters += [(b"qop", either(qop)), (b"nc", either(nc)), (b"cnonce", quoted(cnonce))]
        proof = response("", request["answer"])
        information = ["qop=" + qop, 'rspauth="%s"' % proof]
        information += ["cnonce=" + quoted(cnonce).decode(), "nc=" + nc]
    information.append('nextnonce="next"')
    choose.shuffle(parameters)
    equals, comma = choose.choice([b"=", b"=", b" = "]), choose.choice([b", ", b",", b" ,, "])
    header = comma.join(name + equals + value for name, value in parameters)
    return {
        "authorization": list(choose.choice([b"Digest ", b"digest  "]) + header),
        "information": ", ".join(information),
        "kind": " ".join([algorithm, str(qop), kind, "absolute" if uri != target else "origin"]),
    }


for line in sys.stdin.buffer.read().splitlines():
    print(json.dumps(answer(json.loads(line))))
