#!/usr/bin/env python3
"""The Python SDK's side on Amazon SQS: the verbs and lines of the program `peer`, over `babelqueue`.

`create` and `peek` are for the matrix alone: the one makes a queue, the other shows what lies in one
(and so is counted by SQS as one more receive).
"""

import argparse
import json
import time
from urllib.parse import parse_qs, urlsplit

import boto3
from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.redrive import redrive
from babelqueue.sqs_transport import SqsTransport

URNS = ["urn:babel:orders:created", "urn:babel:peer:test"]


def transport(options):
    return SqsTransport(options.broker, fifo=options.queue.endswith(".fifo"))


def app(options, **more):
    return BabelQueue(transport=transport(options), queue=options.queue, **more)


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
        retry_backoff=options.backoff,
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
            # The SDK hands its own over among the user's.
            "headers": {name: value for name, value in headers_from_context().items() if not name.startswith("bq-")},
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
        bq.consume(max_messages=1, timeout=1, handle_signals=False)
    return 0 if seen["ok"] >= options.count else 3


def redrive_all(options):
    result = redrive(transport(options), options.queue, timeout=3.0)
    for item in result.items:
        print(json.dumps({"redriven": item.message_id, "to": item.to, "ok": item.redriven}), flush=True)
    return 0 if result.redriven >= options.count else 3


def client(options):
    split = urlsplit(options.broker)
    return boto3.client("sqs", region_name=split.hostname, endpoint_url=parse_qs(split.query)["endpoint"][0])


def create(options):
    fifo = {"FifoQueue": "true"} if options.queue.endswith(".fifo") else {}
    client(options).create_queue(QueueName=options.queue, Attributes=fifo)
    return 0


def peek(options):
    sqs = client(options)
    url = sqs.get_queue_url(QueueName=options.queue)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"]
    there = sum(int(count) for count in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values())
    seen = {}
    deadline = time.monotonic() + 30
    while len(seen) < there and time.monotonic() < deadline:
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=1, MessageAttributeNames=["All"])
        for message in got.get("Messages", []):
            seen[message["MessageId"]] = message
    for message in seen.values():
        headers = {name: value.get("StringValue") for name, value in message.get("MessageAttributes", {}).items()}
        print(json.dumps({"body": message["Body"], "headers": headers}), flush=True)
    return 0 if len(seen) == there else 3


def options():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("produce", "consume", "redrive", "create", "peek"):
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
            verb.add_argument("--backoff", type=float, default=0)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
            verb.add_argument("--unknown", default="fail")
            verb.add_argument("--concurrency", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    given = options()
    run = {"produce": produce, "consume": consume, "redrive": redrive_all, "create": create, "peek": peek}
    raise SystemExit(run[given.verb](given))
