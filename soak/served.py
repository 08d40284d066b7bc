"""The App of the soak, as `milepost worker --app soak.served:app` and the people of the soak open it."""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import httpx

import milepost as mp
from faults.tools import Door
from soak import scene as scenes
from soak.flows import Flows
from soak.scene import LEASE, OLD, SLOW, SLOW_PER_GROUP, SLOW_TOGETHER, VERSION, Scene
from soak.tools import Tools

SHOP = mp.Authority("shop", tenant="shop")
BUDGET = {"usd": 50}
TLS = ssl.create_default_context()  # made once; nothing here is encrypted


def made(scene: Scene, version: str) -> tuple[mp.App, Flows]:
    """Return the App over a scene, and its workflows, as code of one version declares them."""
    flows = Flows(Tools(scene), version)
    setup = scene.setup

    @asynccontextmanager
    async def door() -> AsyncIterator[Door]:
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=setup.hears_s, limits=limits, trust_env=False, verify=TLS) as client:
            yield Door(setup.outside, client, setup.hears_s)

    app = mp.App(
        scene.store, workflows=flows.all, resources={Door: door}, lease=LEASE,
        breaker=mp.Breaker(5, cooldown="1s", most="3s"),
    )  # fmt: skip
    app.limit(SLOW, together=SLOW_TOGETHER)
    app.limit(SLOW, by="group", together=SLOW_PER_GROUP)
    app.schedule(flows.tick, "* * * * *", ticked, key="tick", catch_up="all", authority=SHOP)
    return app, flows


def ticked(moment: datetime) -> str:
    """Return the input of a tick."""
    return f"tick-{moment:%H%M%S}"


if scenes.WHERE in os.environ:
    app, flows = made(scenes.read(), os.environ.get(VERSION, OLD))
