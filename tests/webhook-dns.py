"""A server with webhooks in a network of its own, where the answers of the name server change.

Run as root of a new network and mount namespace, in an empty folder: webhook-dns.py NOUNS PUBLIC_ADDRESS.
All addresses are those of the loopback interface. Prints a line for each step.
"""

import base64
import http.client
import ipaddress
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

NOUNS, PUBLIC = sys.argv[1:]
PRIVATE = ["127.0.0.1", "::1", "169.254.169.254"]
PORT = 8443
SECONDS_MAX = 100

MODEL = """
title = "Shop"
[resources.customer.fields]
name = { type = "text" }
"""

# Addresses by name; a name with None gets no answer.
answers = {}
asked = []
connections = {"public": 0, "private": 0}


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def wait_until(what, happened):
    deadline = time.monotonic() + SECONDS_MAX
    while not (value := happened()):
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain until {what}; see serve.err")
        time.sleep(0.02)
    return value


def answer_query(query):
    """RFC 1035 section 4: the header, the question, and the addresses of the type in question."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    name, kind = ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0]
    asked.append(name)
    addresses = answers.get(name, [])
    if addresses is None:
        return None
    wanted = {1: 4, 28: 16}.get(kind)
    packed = [ipaddress.ip_address(address).packed for address in addresses]
    packed = [address for address in packed if len(address) == wanted]
    records = [struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(data)) + data for data in packed]
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0)
    return head + query[12 : at + 5] + b"".join(records)


def serve_names():
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 53))

    def serve():
        while True:
            query, client = listener.recvfrom(512)
            if answer := answer_query(query):
                listener.sendto(answer, client)

    threading.Thread(target=serve, daemon=True).start()


def listen(address, kind, respond):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, PORT))
    listener.listen()

    def serve():
        while True:
            stream, _ = listener.accept()
            connections[kind] += 1
            try:
                respond(stream)
            except OSError:
                pass
            stream.close()

    threading.Thread(target=serve, daemon=True).start()


def receive(stream):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("nouns-cert.pem", "nouns-key.pem")
    with context.wrap_socket(stream, server_side=True) as stream:
        request = b""
        while b"\r\n\r\n" not in request:
            if not (data := stream.recv(4096)):
                return
            request += data
        head, body = request.split(b"\r\n\r\n", 1)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += stream.recv(4096)
        stream.sendall(b"HTTP/1.1 204 X\r\n\r\n")


def request(method, path, body=None):
    login = base64.b64encode(f"admin:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=SECONDS_MAX)
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    text = response.read()
    if response.status >= 300:
        sys.exit(f"{method} {path}: {response.status} {text}")
    return response.getheader("Location"), json.loads(text)


def create_webhook(host):
    body = {"webhook": {"url": f"https://{host}:{PORT}/", "events": ["customer.*"]}}
    return request("POST", "/-/webhooks", body)[0]


def create_customer():
    return request("POST", "/customers", {"customer": {"name": "Ann"}})[0]


def attempted(webhook, customer):
    """The delivery of a customer's creation, after its first attempt."""

    def find():
        _, list = request("GET", f"{webhook}/deliveries?limit=200")
        found = [one for one in list["deliveries"] if one["subject"] == customer]
        return found and found[0]["attempts"] and found[0]

    return wait_until(f"{customer} is sent", find)


for name, text in [
    ("hosts", ""),
    ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n"),
    ("nsswitch.conf", "hosts: files dns\n"),
]:
    with open(name, "w") as file:
        file.write(text)
    run("mount", "--bind", name, f"/etc/{name}")
with open("model.toml", "w") as file:
    file.write(MODEL)
run("ip", "link", "set", "lo", "up")
run("ip", "address", "add", f"{PUBLIC}/32", "dev", "lo")
run("ip", "address", "add", "169.254.169.254/32", "dev", "lo")
run(NOUNS, "cert", "--name", "hook.example")
serve_names()
listen(PUBLIC, "public", receive)
for address in PRIVATE:
    listen(address, "private", lambda stream: None)
command = [NOUNS, "serve", "model.toml", "--listen", "127.0.0.1:8080", "--database", "sqlite:a.db"]
environment = {"SSL_CERT_FILE": os.path.abspath("nouns-cert.pem")}
with open("serve.err", "w") as errors, open("serve.out", "w") as output:
    server = subprocess.Popen(command, env=environment, stdout=output, stderr=errors)
try:
    wait_until("the server serves", lambda: "serving" in open("serve.out").read())
    password = open("a.admin-password").read().strip()
    hook = create_webhook("hook.example")
    for addresses in [
        [PUBLIC],
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["169.254.169.254"],
        [PUBLIC, "127.0.0.1"],
        [PUBLIC, "::1"],
        [PUBLIC],
    ]:
        answers["hook.example"] = addresses
        delivery = attempted(hook, create_customer())
        print(" ".join(addresses) + ":", delivery["status"], delivery["error"])
    print("private connections:", connections["private"])

    # The names of two webhooks are never resolved, with four deliveries each.
    slow_names = ["a.slow.example", "b.slow.example"]
    answers.update({name: None for name in slow_names})
    slow_hooks = [create_webhook(name) for name in slow_names]
    customers = [create_customer() for _ in range(4)]
    wait_until("the slow names are asked for", lambda: set(slow_names) <= set(asked))
    print("beside slow names:", attempted(hook, create_customer())["status"])
    for slow_hook in slow_hooks:
        print("slow name:", attempted(slow_hook, customers[0])["error"])
finally:
    server.kill()
    server.wait()
