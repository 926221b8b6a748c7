#!/usr/bin/env python3
"""The Python SDK's side on Kafka."""

import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from babelqueue.kafka_retry import RetryReinjector
from babelqueue.kafka_transport import KafkaTransport

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from verbs import Side, say  # noqa: E402


def parts(url):
    """The address, the group and the tiers: query keys of our own, which the SDK takes as options."""
    split = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(split.query).items()}
    tiers = [int(ms) for ms in query.get("retry_tiers", "").split(",") if ms]
    return f"kafka://{split.netloc}", query.get("group", "babelqueue"), tiers


def transport(options):
    address, group, tiers = parts(options.broker)
    return KafkaTransport(address, group_id=group, retry_tiers_ms=tiers or None)


def reinject(options):
    address, group, tiers = parts(options.broker)
    reinjector = RetryReinjector(address, work_topics=[options.queue], retry_tiers_ms=tiers, group_id=f"{group}-reinject", **{"auto.offset.reset": "earliest"})
    deadline = time.monotonic() + options.timeout
    written = 0
    while written < options.count and time.monotonic() < deadline:
        written += reinjector.run_once(0.2)
    say({"reinjected": written})
    return 0 if written >= options.count else 3


if __name__ == "__main__":
    Side(transport, drain=10.0).main(reinject=reinject)
