#!/usr/bin/env python3
"""The Python SDK as a rival of the benches: publishes or consumes, and prints how many a second.

The clock starts when the first message is through, so that neither the interpreter's start, nor the
connection, nor a consumer group's first assignment counts against it.
"""

import argparse
import time
from urllib.parse import parse_qs, urlsplit

from babelqueue import BabelQueue

URN = "urn:babel:orders:created"
DATA = {"order_id": 1042, "x": 1}


def transport(url):
    """The transport for the URL's scheme. What the SDK takes as options are query keys of our own."""
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    bare = parts._replace(query="").geturl()
    if parts.scheme == "redis":
        from babelqueue.redis_transport import RedisTransport

        return RedisTransport(bare, laravel_compat=query.get("layout") == "laravel")
    if parts.scheme == "amqp":
        from babelqueue.pika_transport import PikaTransport

        return PikaTransport(bare)
    if parts.scheme == "kafka":
        from babelqueue.kafka_transport import KafkaTransport

        return KafkaTransport(bare, group_id=query.get("group", "babelqueue"))
    raise SystemExit(f"no broker for the scheme `{parts.scheme}`")


def flush(over):
    """Waits for what the SDK's `publish` only hands to its client, where it does that."""
    if hasattr(over, "_producer_"):
        over._producer_().flush()


def publish(bq, count):
    bq.publish(URN, DATA)
    flush(bq.transport)
    started = time.monotonic()
    for _ in range(count - 1):
        bq.publish(URN, DATA)
    flush(bq.transport)
    # Ends after the broker has read it all.
    bq.transport.close()
    return (count - 1) / (time.monotonic() - started)


def consume(bq, count, deadline):
    def handle(data, meta):
        assert data["order_id"] == 1042

    bq.register(URN, handle)

    def take(more):
        left = more
        while left:
            left -= bq.consume(max_messages=left, timeout=0.2, handle_signals=False)
            if time.monotonic() > deadline:
                raise SystemExit(f"{left} of {more} did not come")

    take(1)
    started = time.monotonic()
    take(count - 1)
    took = time.monotonic() - started
    bq.transport.close()
    return (count - 1) / took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["publish", "consume"])
    parser.add_argument("--broker", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args()
    bq = BabelQueue(transport=transport(given.broker), queue=given.queue)
    if given.verb == "publish":
        print(publish(bq, given.count))
    else:
        print(consume(bq, given.count, time.monotonic() + 120))


if __name__ == "__main__":
    main()
