"""The verbs and lines of the program `peer`, over the Python SDK: what is the same on every broker."""

import argparse
import json
import time

from babelqueue import BabelQueue
from babelqueue.headers import headers_from_context
from babelqueue.redrive import redrive

URNS = ["urn:babel:orders:created", "urn:babel:peer:test"]


class Side:
    """`transport` makes the SDK's transport from the options. `own` is how the headers begin that the SDK
    hands over among the user's; `poll` and `drain` are seconds, for one receive and for a redrive.
    """

    def __init__(self, transport, own=None, poll=0.2, drain=1.0):
        self.transport = transport
        self.own = own
        self.poll = poll
        self.drain = drain

    def main(self, **more):
        """Runs the verb of the command line: one of its own, or one of `more`, which take the options too."""
        run = {"produce": self.produce, "consume": self.consume, "redrive": self.redrive, **more}
        options = parse(run)
        raise SystemExit(run[options.verb](options))

    def app(self, options, **more):
        return BabelQueue(transport=self.transport(options), queue=options.queue, **more)

    def produce(self, options):
        bq = self.app(options)
        headers = dict(pair.split("=", 1) for pair in options.header)
        for n in range(options.count):
            if options.body is not None:
                bq.transport.publish(options.queue, options.body)
                envelope = json.loads(options.body)
                say({"published": envelope["meta"]["id"], "urn": envelope["job"]})
                continue
            data = json.loads(options.data) if options.data else {"n": n}
            send = bq.publish_with_headers if headers else bq.publish
            arguments = [options.urn, data] + ([headers] if headers else [])
            ident = send(*arguments, trace_id=options.trace)
            say({"published": ident, "urn": options.urn})
        close(bq.transport)
        return 0

    def consume(self, options):
        backoff = {"retry_backoff": options.backoff} if options.backoff else {}
        bq = self.app(
            options,
            max_attempts=options.max_attempts,
            dead_letter=options.dlq,
            on_unknown_urn=options.unknown,
            **backoff,
        )
        seen = {"deliveries": 0, "ok": 0}

        def handle(data, meta, envelope):
            seen["deliveries"] += 1
            ok = seen["deliveries"] > options.fail_first
            headers = headers_from_context().items()
            say(
                {
                    "urn": envelope["job"],
                    "trace_id": envelope.get("trace_id"),
                    "id": meta.get("id"),
                    "attempts": envelope.get("attempts"),
                    "data": data,
                    "lang": meta.get("lang"),
                    "dead_letter": envelope.get("dead_letter"),
                    "ok": ok,
                    "delivery": seen["deliveries"],
                    "headers": {name: value for name, value in headers if not (self.own and name.startswith(self.own))},
                }
            )
            if not ok:
                raise RuntimeError("failed as it was told to")
            seen["ok"] += 1

        for urn in options.urn or URNS:
            bq.register(urn, handle)
        deadline = time.monotonic() + options.timeout
        most = options.deliveries or float("inf")
        while seen["ok"] < options.count and seen["deliveries"] < most and time.monotonic() < deadline:
            bq.consume(max_messages=1, timeout=self.poll, handle_signals=False)
        close(bq.transport)
        return 0 if seen["ok"] >= options.count or seen["deliveries"] >= most else 3

    def redrive(self, options):
        over = self.transport(options)
        result = redrive(over, options.queue, timeout=self.drain)
        close(over)
        for item in result.items:
            say({"redriven": item.message_id, "to": item.to, "ok": item.redriven})
        return 0 if result.redriven >= options.count else 3


def say(line):
    print(json.dumps(line, ensure_ascii=False), flush=True)


def close(transport):
    """What was published, and the last ack, may be on its way only until then; and a member of a group that
    does not leave holds up the others."""
    if hasattr(transport, "close"):
        transport.close()


def parse(run):
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in run:
        verb = verbs.add_parser(name)
        verb.add_argument("--broker", required=True)
        verb.add_argument("--queue", required=True)
        verb.add_argument("--count", type=int, default=1)
        verb.add_argument("--timeout", type=float, default=30)
        if name == "produce":
            verb.add_argument("--urn", default="urn:babel:peer:test")
            verb.add_argument("--data")
            verb.add_argument("--body")
            verb.add_argument("--trace")
            verb.add_argument("--header", action="append", default=[])
        if name == "consume":
            verb.add_argument("--urn", action="append")
            verb.add_argument("--fail-first", type=int, default=0)
            verb.add_argument("--max-attempts", type=int, default=3)
            verb.add_argument("--backoff", type=float, default=0)
            verb.add_argument("--deliveries", type=int)
            verb.add_argument("--dlq", action="store_true")
            verb.add_argument("--unknown", default="fail")
            verb.add_argument("--concurrency", type=int, default=1)
    return parser.parse_args()
