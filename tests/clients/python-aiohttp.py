"""aiohttp: one session for all steps, in one event loop."""

import asyncio
import ssl

import aiohttp

import steps

LOOP = asyncio.new_event_loop()
CONTEXT = ssl.create_default_context(cafile=steps.CA)
# One at a time, or it complains of those that were not closed.
OPEN = []


async def close():
    while OPEN:
        await OPEN.pop().close()


async def begin(scheme, name, password):
    await close()
    # In docs/reference/clients.md:
    if scheme == "basic":
        login = {"headers": {"Authorization": aiohttp.encode_basic_auth(name, password, "utf-8")}}
    else:
        login = {"middlewares": [aiohttp.DigestAuthMiddleware(name, password)]}
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=CONTEXT), **login)
    # Not in it:
    OPEN.append(session)
    return session


def log_in(_base, scheme, name, password):
    session = LOOP.run_until_complete(begin(scheme, name, password))

    async def ask(method, url, body, headers):
        async with session.request(method, url, data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    return lambda *request: LOOP.run_until_complete(ask(*request))


steps.take(aiohttp.__version__, log_in)
LOOP.run_until_complete(close())
