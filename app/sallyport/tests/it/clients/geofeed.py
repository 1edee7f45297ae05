"""Checks a geofeed by the rules of RFC 8805, and prints its prefixes with their countries as JSON."""

import csv
import ipaddress
import json
import re
import sys

MAX_BYTES = 1 << 20
FIELDS = 5
COUNTRY = re.compile(r"[A-Z]{2}")
REGION = re.compile(r"[A-Z]{2}-[A-Z0-9]{1,3}")


def check(text: str) -> dict[str, str]:
    """The prefixes with their countries. A ValueError says which line breaks which rule."""
    seen: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        # Section 2.1: blank lines and text after "#" are comments.
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        rows = list(csv.reader([content]))
        fields = [field.strip() for field in rows[0]]
        if len(fields) != FIELDS:
            raise ValueError(f"line {number} has {len(fields)} fields")
        prefix, country, region, city, postal = fields
        # Section 2.1.1.1: no host bits, and a prefix once.
        network = ipaddress.ip_network(prefix, strict=True)
        if str(network) in seen:
            raise ValueError(f"line {number} repeats {network}")
        if country and not COUNTRY.fullmatch(country):
            raise ValueError(f"line {number}: {country!r} is no country")
        # Section 2.1.1.3: a subdivision of the country.
        if region and not (REGION.fullmatch(region) and region.startswith(f"{country}-")):
            raise ValueError(f"line {number}: {region!r} is no region of {country}")
        if city and not country:
            raise ValueError(f"line {number} has a city of no country")
        # Section 2.1.1.5: postal codes are deprecated.
        if postal:
            raise ValueError(f"line {number} has a postal code")
        seen[str(network)] = country
    return seen


def main() -> None:
    raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError("the feed is too large")
    print(json.dumps(check(raw.decode("utf-8", errors="strict"))))


main()
