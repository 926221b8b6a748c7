#!/usr/bin/env python3
"""The Python SDK's side on Redis."""

import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from babelqueue.redis_transport import RedisTransport

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from verbs import Side  # noqa: E402


def transport(options):
    """The SDK hands its own query keys on to redis-py, which refuses them: so they go in as options."""
    parts = urlsplit(options.broker)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    laravel = query.get("layout") == "laravel" or query.get("laravel") == "1"
    retry_after = int(query.get("retry_after", 90))
    bare = urlunsplit((parts.scheme, parts.netloc, parts.path or "/0", "", ""))
    return RedisTransport(bare, laravel_compat=laravel, retry_after=retry_after)


if __name__ == "__main__":
    Side(transport, drain=0.5).main()
