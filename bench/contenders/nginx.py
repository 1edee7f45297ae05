"""nginx, which ends TLS in front of others that do not."""

import os

from harness import Unavailable

from .base import ORIGINS, PUBLIC_PORT, Contender, first_line


def nginx_edge(contender, upstreams):
    """nginx ends TLS and passes on to a local port for each name."""
    bench = contender.bench
    blocks = "".join(f"""
  upstream u{port} {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {contender.address}:{PUBLIC_PORT} ssl http2{" backlog=65535" if number == 0 else ""};
    server_name {host};
    ssl_certificate {bench.certificate}; ssl_certificate_key {bench.key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:10m;
    location / {{
      proxy_pass http://u{port}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffers 16 16k; proxy_max_temp_file_size 0; proxy_request_buffering off; client_max_body_size 0;
    }}
  }}""" for number, (host, port) in enumerate(upstreams.items()))
    workers = min(2, len(os.sched_getaffinity(0)))
    conf = contender.file("nginx.conf", f"""worker_processes {workers}; daemon off; user root;
pid {bench.folder}/{contender.name}-nginx.pid; error_log {bench.folder}/{contender.name}-nginx.err;
events {{ worker_connections 20000; }}
http {{ access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;{blocks}
}}
""")
    contender.spawn("server", ["nginx", "-p", bench.folder, "-c", conf])


class NginxAlone(Contender):
    name = "nginx"
    about = "nginx ends TLS, no tunnel: what the machine can do"
    is_peer = False

    @classmethod
    def versions(cls, bench):
        return {"nginx": first_line("nginx", "-v")}

    def start(self):
        nginx_edge(self, ORIGINS)

    def start_origins(self, count, programs):
        if count > 1:
            raise Unavailable("nginx alone has one origin")
        self.start()
