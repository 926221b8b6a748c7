#!/usr/bin/env python3
"""The Python SDK's side of the matrix: the verbs and lines of the program `peer`, over `babelqueue`."""

import argparse
import json
import sys
import time
from urllib.parse import parse_qs, urlsplit, urlunsplit

from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.redis_transport import RedisTransport
from babelqueue.redrive import redrive

URNS = ["urn:babel:orders:created", "urn:babel:peer:test"]


def transport(url):
    """The SDK hands its own query keys on to redis-py, which refuses them: so they go in as options."""
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    laravel = query.get("layout") == "laravel" or query.get("laravel") == "1"
    retry_after = int(query.get("retry_after", 90))
    bare = urlunsplit((parts.scheme, parts.netloc, parts.path or "/0", "", ""))
    return RedisTransport(bare, laravel_compat=laravel, retry_after=retry_after)


def app(options, **more):
    return BabelQueue(transport=transport(options.broker), queue=options.queue, **more)


def produce(options):
    bq = app(options)
    headers = dict(pair.split("=", 1) for pair in options.header)
    for n in range(options.count):
        if options.body is not None:
            bq.transport.publish(options.queue, options.body)
            envelope = json.loads(options.body)
            print(json.dumps({"published": envelope["meta"]["id"], "urn": envelope["job"]}), flush=True)
            continue
        data = json.loads(options.data) if options.data else {"n": n}
        send = bq.publish_with_headers if headers else bq.publish
        arguments = [options.urn, data] + ([headers] if headers else [])
        ident = send(*arguments, trace_id=options.trace)
        print(json.dumps({"published": ident, "urn": options.urn}), flush=True)
    return 0


def consume(options):
    bq = app(
        options,
        max_attempts=options.max_attempts,
        dead_letter=options.dlq,
        on_unknown_urn=options.unknown,
    )
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
    return 0 if seen["ok"] >= options.count else 3


def redrive_all(options):
    result = redrive(transport(options.broker), options.queue, timeout=0.5)
    for item in result.items:
        print(json.dumps({"redriven": item.message_id, "to": item.to, "ok": item.redriven}), flush=True)
    return 0 if result.redriven >= options.count else 3


def options():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("produce", "consume", "redrive"):
        verb = verbs.add_parser(name)
        verb.add_argument("--broker", required=True)
        verb.add_argument("--queue", required=True)
        verb.add_argument("--count", type=int, default=1)
        if name == "produce":
            verb.add_argument("--urn", default="urn:babel:peer:test")
            verb.add_argument("--data")
            verb.add_argument("--body")
            verb.add_argument("--trace")
            verb.add_argument("--header", action="append", default=[])
        if name == "consume":
            verb.add_argument("--urn", action="append")
            verb.add_argument("--timeout", type=float, required=True)
            verb.add_argument("--fail-first", type=int, default=0)
            verb.add_argument("--max-attempts", type=int, default=3)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
            verb.add_argument("--unknown", default="fail")
            verb.add_argument("--concurrency", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    sys.exit({"produce": produce, "consume": consume, "redrive": redrive_all}[given.verb](given))
