#!/usr/bin/env python3
"""The Python SDK's side on Kafka: the verbs and lines of the program `peer`, over `babelqueue`."""

import argparse
import json
import time
from urllib.parse import parse_qs, urlsplit

from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.kafka_retry import RetryReinjector
from babelqueue.kafka_transport import KafkaTransport
from babelqueue.redrive import redrive

URNS = ["urn:babel:orders:created", "urn:babel:peer:test"]


def parts(url):
    """The address, the group and the tiers: query keys of our own, which the SDK takes as options."""
    split = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(split.query).items()}
    tiers = [int(ms) for ms in query.get("retry_tiers", "").split(",") if ms]
    return f"kafka://{split.netloc}", query.get("group", "babelqueue"), tiers


def transport(url):
    address, group, tiers = parts(url)
    return KafkaTransport(address, group_id=group, retry_tiers_ms=tiers or None)


def app(options, **more):
    return BabelQueue(transport=transport(options.broker), queue=options.queue, **more)


def produce(options):
    bq = app(options)
    for n in range(options.count):
        data = json.loads(options.data) if options.data else {"n": n}
        ident = bq.publish(options.urn, data, trace_id=options.trace)
        print(json.dumps({"published": ident, "urn": options.urn}), flush=True)
    # `publish` does not wait for the broker.
    bq.transport.close()
    return 0


def consume(options):
    bq = app(options, max_attempts=options.max_attempts, dead_letter=options.dlq, on_unknown_urn=options.unknown)
    seen = {"deliveries": 0, "ok": 0}

    def handle(data, meta, envelope):
        seen["deliveries"] += 1
        ok = seen["deliveries"] > options.fail_first
        line = {
            "urn": envelope["job"],
            "trace_id": envelope.get("trace_id"),
            "id": meta.get("id"),
            "attempts": envelope.get("attempts"),
            "data": data,
            "lang": meta.get("lang"),
            "ok": ok,
            "delivery": seen["deliveries"],
            "headers": dict(headers_from_context()),
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
        if not ok:
            raise RuntimeError("failed as it was told to")
        seen["ok"] += 1

    for urn in options.urn or URNS:
        bq.register(urn, handle)
    deadline = time.monotonic() + options.timeout
    most = options.deliveries or float("inf")
    while seen["ok"] < options.count and seen["deliveries"] < most and time.monotonic() < deadline:
        bq.consume(max_messages=1, timeout=0.2, handle_signals=False)
    bq.transport.close()
    return 0 if seen["ok"] >= options.count else 3


def redrive_all(options):
    over = transport(options.broker)
    result = redrive(over, options.queue, timeout=10.0)
    # A member that does not leave holds up its group until its session has run out.
    over.close()
    for item in result.items:
        print(json.dumps({"redriven": item.message_id, "to": item.to, "ok": item.redriven}), flush=True)
    return 0 if result.redriven >= options.count else 3


def reinject(options):
    address, group, tiers = parts(options.broker)
    reinjector = RetryReinjector(address, work_topics=[options.queue], retry_tiers_ms=tiers, group_id=f"{group}-reinject", **{"auto.offset.reset": "earliest"})
    deadline = time.monotonic() + options.timeout
    written = 0
    while written < options.count and time.monotonic() < deadline:
        written += reinjector.run_once(0.2)
    print(json.dumps({"reinjected": written}), flush=True)
    return 0 if written >= options.count else 3


def options():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("produce", "consume", "redrive", "reinject"):
        verb = verbs.add_parser(name)
        verb.add_argument("--broker", required=True)
        verb.add_argument("--queue", required=True)
        verb.add_argument("--count", type=int, default=1)
        if name == "produce":
            verb.add_argument("--urn", default="urn:babel:peer:test")
            verb.add_argument("--data")
            verb.add_argument("--trace")
        if name in ("consume", "reinject"):
            verb.add_argument("--timeout", type=float, required=True)
        if name == "consume":
            verb.add_argument("--urn", action="append")
            verb.add_argument("--fail-first", type=int, default=0)
            verb.add_argument("--max-attempts", type=int, default=3)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
            verb.add_argument("--unknown", default="fail")
            verb.add_argument("--concurrency", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    run = {"produce": produce, "consume": consume, "redrive": redrive_all, "reinject": reinject}
    raise SystemExit(run[given.verb](given))
