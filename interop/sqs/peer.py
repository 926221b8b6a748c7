#!/usr/bin/env python3
"""The Python SDK's side on Amazon SQS.

`create` and `peek` are for the matrix alone: the one makes a queue, the other shows what lies in one
(and so is counted by SQS as one more receive).
"""

import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import boto3
from babelqueue.sqs_transport import SqsTransport

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from verbs import Side, say  # noqa: E402


def transport(options):
    return SqsTransport(options.broker, fifo=options.queue.endswith(".fifo"))


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
        say({"body": message["Body"], "headers": headers})
    return 0 if len(seen) == there else 3


if __name__ == "__main__":
    Side(transport, own="bq-", poll=1, drain=3.0).main(create=create, peek=peek)
