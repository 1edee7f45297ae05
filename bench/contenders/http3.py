"""Who serves clients over HTTP/3, and Sallyport over HTTP/2 beside them; all are asked by the same loads."""

import os

import http3

from .base import ORIGINS, PAGES, PUBLIC_PORT, Contender, first_line
from .sallyport import SallyportHttps


class Http3:
    """What the contenders of this set have in common."""

    #: The version of HTTP that clients ask with.
    version = "3"
    tools = ("http3-load",)

    def try_once(self):
        super().try_once()
        http3.answers(self, PAGES)


class SallyportHttp3(Http3, SallyportHttps):
    about = "sallyport up, sallyport tunnel connect; clients come by HTTP/3"


class SallyportHttp2(Http3, SallyportHttps):
    name = "sallyport-h2"
    about = "the same; clients come by HTTP/2"
    version = "2"
    is_peer = False


class Caddy(Http3, Contender):
    name = "caddy"
    about = "Caddy as a reverse proxy, no tunnel (the origin must be reachable)"
    is_peer = False
    tools = (*Http3.tools, "caddy")

    @classmethod
    def versions(cls, bench):
        return {"caddy": first_line(bench.tool("caddy"), "version").split()[0]}

    def start(self):
        sites = "".join(f"""https://{host}:{PUBLIC_PORT} {{
  bind {self.address}
  tls {self.bench.certificate} {self.bench.key}
  reverse_proxy 127.0.0.1:{port}
}}
""" for host, port in ORIGINS.items())
        # It makes no certificates, and leaves the machine's list of authorities alone.
        conf = self.file("Caddyfile", f"""{{
  admin off
  auto_https off
  skip_install_trust
  persist_config off
  log {{
    output stderr
    level ERROR
  }}
}}
{sites}""")
        state = os.path.join(self.bench.folder, "caddy-state")
        self.spawn("server", [self.bench.tool("caddy"), "run", "--adapter", "caddyfile", "--config", conf],
                   {"HOME": state, "XDG_DATA_HOME": state, "XDG_CONFIG_HOME": state})


class NginxQuic(Http3, Contender):
    name = "nginx-quic"
    about = "nginx with QUIC as a reverse proxy, no tunnel (the origin must be reachable)"
    is_peer = False
    is_optional = True
    tools = (*Http3.tools, "nginx-quic")

    @classmethod
    def versions(cls, bench):
        return {"nginx-quic": first_line(bench.tool("nginx-quic"), "-v")}

    def start(self):
        bench, errors = self.bench, f"{self.bench.folder}/{self.name}.err"
        blocks = "".join(f"""
  upstream u{port} {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {self.address}:{PUBLIC_PORT} quic{" reuseport" if number == 0 else ""};
    listen {self.address}:{PUBLIC_PORT} ssl{" backlog=65535" if number == 0 else ""};
    http2 on;
    server_name {host};
    ssl_certificate {bench.certificate}; ssl_certificate_key {bench.key};
    ssl_protocols TLSv1.3; quic_gso on;
    location / {{
      proxy_pass http://u{port}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffers 16 16k; proxy_max_temp_file_size 0; proxy_request_buffering off; client_max_body_size 0;
    }}
  }}""" for number, (host, port) in enumerate(ORIGINS.items()))
        conf = self.file("nginx.conf", f"""worker_processes 2; daemon off; user root;
pid {bench.folder}/{self.name}.pid; error_log {errors};
events {{ worker_connections 20000; }}
http {{ access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;{blocks}
}}
""")
        self.spawn("server", [bench.tool("nginx-quic"), "-e", errors, "-p", bench.folder, "-c", conf])
