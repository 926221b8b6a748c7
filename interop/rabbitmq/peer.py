#!/usr/bin/env python3
"""The Python SDK's side of the interop matrix over RabbitMQ: the verbs and lines of the program `peer`."""

import argparse
import json
import sys
import time

from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.pika_transport import PikaTransport


def app(options, **more):
    return BabelQueue(transport=PikaTransport(options.broker), queue=options.queue, **more)


def produce(options):
    bq = app(options)
    headers = dict(pair.split("=", 1) for pair in options.header)
    for n in range(options.count):
        data = json.loads(options.data) if options.data else {"n": n}
        send = bq.publish_with_headers if headers else bq.publish
        arguments = [options.urn, data] + ([headers] if headers else [])
        ident = send(*arguments, trace_id=options.trace)
        print(json.dumps({"published": ident, "urn": options.urn}), flush=True)
    return 0


def consume(options):
    bq = app(options, max_attempts=options.max_attempts, dead_letter=options.dlq)
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
            "dead_letter": envelope.get("dead_letter"),
            "ok": ok,
            "headers": dict(headers_from_context()),
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
        if not ok:
            raise RuntimeError("failed as it was told to")
        seen["ok"] += 1

    bq.register(options.urn, handle)
    deadline = time.monotonic() + options.timeout
    most = options.deliveries or float("inf")
    while seen["ok"] < options.count and seen["deliveries"] < most and time.monotonic() < deadline:
        bq.consume(max_messages=1, timeout=0.2, handle_signals=False)
    return 0 if seen["ok"] >= options.count or seen["deliveries"] >= most else 3


def options():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("produce", "consume"):
        verb = verbs.add_parser(name)
        verb.add_argument("--broker", required=True)
        verb.add_argument("--queue", required=True)
        verb.add_argument("--count", type=int, default=1)
        verb.add_argument("--urn", default="urn:babel:peer:test")
        if name == "produce":
            verb.add_argument("--data")
            verb.add_argument("--trace")
            verb.add_argument("--header", action="append", default=[])
        else:
            verb.add_argument("--timeout", type=float, default=30)
            verb.add_argument("--fail-first", type=int, default=0)
            verb.add_argument("--max-attempts", type=int, default=3)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    sys.exit({"produce": produce, "consume": consume}[given.verb](given))
