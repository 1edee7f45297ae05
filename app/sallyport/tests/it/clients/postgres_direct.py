"""A database driver that speaks TLS from the first byte: postgres_direct.py CA HOST PORT"""

import sys

import psycopg

ca, host, port = sys.argv[1:]
assert psycopg.pq.version() >= 170000, "direct TLS came with libpq 17"
target = {
    "host": host,
    "hostaddr": "127.0.0.1",
    "port": port,
    "user": "postgres",
    "sslmode": "verify-full",
    "sslnegotiation": "direct",
    "sslrootcert": ca,
    "connect_timeout": 30,
}
with psycopg.connect(**target) as connection:
    assert connection.pgconn.ssl_in_use
    rows = connection.execute("select x, repeat('y', 100) from generate_series(1, 50000) x").fetchall()
    assert [row[0] for row in rows] == list(range(1, 50001))
    print(len(rows), "rows came back")
