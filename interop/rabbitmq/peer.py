#!/usr/bin/env python3
"""The Python SDK's side on RabbitMQ.

`peek` is for the matrix alone: it shows what lies in a queue, and puts it back.
"""

import sys
from pathlib import Path

import pika
from babelqueue.pika_transport import PikaTransport

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from verbs import Side, say  # noqa: E402


def transport(options):
    return PikaTransport(options.broker)


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
        say(line)
    # What was not acknowledged goes back.
    connection.close()
    return 0 if seen >= options.count else 3


if __name__ == "__main__":
    Side(transport, own="x-").main(peek=peek)
