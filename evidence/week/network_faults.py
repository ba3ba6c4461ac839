"""Faults between the parts: the network, the registry, the issuer of tokens."""

import contextlib
import json
import time

from evidence.week.spark_faults import kill_driver


def cut_network(world, rng):
    """All connections to the brokers are reset, a few times.

    Answers are held back for a moment first, so that brokers have appended what is sent again.
    """
    cuts = rng.randint(2, 5)
    for _ in range(cuts):
        with contextlib.ExitStack() as answers:
            for proxy in world.proxies.values():
                answers.enter_context(proxy.answers_held_back())
            time.sleep(rng.uniform(0.1, 1))
            for proxy in world.proxies.values():
                proxy.cut()
        time.sleep(rng.uniform(0.5, 5))
    return {"cuts": cuts}


def hold_back_network(world, rng):
    """Connections to one broker stay open, and carry nothing for a while."""
    number = rng.choice(list(world.proxies))
    with world.proxies[number].held_back():
        time.sleep(rng.uniform(5, 30))
    return {"broker": number}


def slow_network(world, rng):
    """Each piece of data takes longer on its way to the brokers and back."""
    delay_s = rng.uniform(0.02, 0.2)
    for proxy in world.proxies.values():
        proxy.delay_s = delay_s
    try:
        time.sleep(rng.uniform(20, 40))
    finally:
        for proxy in world.proxies.values():
            proxy.delay_s = 0.0
    return {"delay_ms": round(1000 * delay_s)}


def issuer_away(world, rng):
    """No tokens for longer than the latest ones live, and until a log says so."""
    with world.issuer.away():
        world.hold("issuer away", world.token_life_s + rng.uniform(0, 15))
    return {}


def registry_away(world, rng):
    """The registry answers nothing while a driver starts: its stream of Avro waits and fails."""
    with world.registry_proxy.held_back():
        note = kill_driver(world, rng)
        world.hold("registry away", rng.uniform(10, 30))
    return note


def registry_changes(world, rng):
    """Another team registers a schema with one more field; the writer keeps its own."""
    subject = "/subjects/week-avro-value/versions"
    latest = json.loads(world.registry.ask("GET", f"{subject}/latest")["schema"])
    more = {"name": f"more_{rng.randrange(10**6)}", "type": ["null", "int"], "default": None}
    latest["fields"].append(more)
    world.registry.ask("POST", subject, {"schema": json.dumps(latest)})
    return kill_driver(world, rng)
