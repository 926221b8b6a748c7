#!/usr/bin/env python3
"""The Python SDK's side on RabbitMQ: the verbs and lines of the program `peer`, over `babelqueue`.

`peek` is for the matrix alone: it shows what lies in a queue, and puts it back.
"""

import argparse
import json
import time

import pika
from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.pika_transport import PikaTransport
from babelqueue.redrive import redrive

URNS = ["urn:babel:orders:created", "urn:babel:peer:test"]


def app(options, **more):
    return BabelQueue(transport=PikaTransport(options.broker), queue=options.queue, **more)


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
            "dead_letter": envelope.get("dead_letter"),
            "ok": ok,
            "delivery": seen["deliveries"],
            # The SDK hands its own over among the user's.
            "headers": {name: value for name, value in headers_from_context().items() if not name.startswith("x-")},
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
    # The last ack is on its way only.
    bq.transport.close()
    return 0 if seen["ok"] >= options.count or seen["deliveries"] >= most else 3


def redrive_all(options):
    over = PikaTransport(options.broker)
    result = redrive(over, options.queue, timeout=1.0)
    over.close()
    for item in result.items:
        print(json.dumps({"redriven": item.message_id, "to": item.to, "ok": item.redriven}), flush=True)
    return 0 if result.redriven >= options.count else 3


def peek(options):
    connection = pika.BlockingConnection(pika.URLParameters(options.broker))
    channel = connection.channel()
    seen = 0
    while True:
        try:
            method, properties, body = channel.basic_get(options.queue)
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code != 404:
                raise
            # A dead-letter queue is made when it is needed.
            break
        if method is None:
            break
        seen += 1
        line = {
            "body": body.decode("utf-8", "backslashreplace"),
            "headers": properties.headers or {},
            "type": properties.type,
            "correlation_id": properties.correlation_id,
            "message_id": properties.message_id,
            "app_id": properties.app_id,
            "content_type": properties.content_type,
            "delivery_mode": properties.delivery_mode,
        }
        print(json.dumps(line), flush=True)
    # What was not acknowledged goes back.
    connection.close()
    return 0 if seen >= options.count else 3


def options():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("produce", "consume", "redrive", "peek"):
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
            verb.add_argument("--timeout", type=float, default=30)
            verb.add_argument("--fail-first", type=int, default=0)
            verb.add_argument("--max-attempts", type=int, default=3)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
            verb.add_argument("--unknown", default="fail")
            verb.add_argument("--concurrency", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    run = {"produce": produce, "consume": consume, "redrive": redrive_all, "peek": peek}
    raise SystemExit(run[given.verb](given))
