"""Who is compared, and how each is set up: origins of a private machine, brought to the public by an encrypted tunnel.

Every server listens on 127.0.0.1. Clients reach their server at `leg`: 127.0.0.1 itself, or 127.0.0.2 where the delay
relay listens. Each contender uses the ciphers and defaults that it comes with.
"""

from .base import DOMAIN, ECHO, ECHO_PORT, ORIGIN_PORT, PAGES, SINK, SINK_PORT
from .frp import FrpHttps, FrpTcp, FrpTcpPool, FrpUdp, NginxFrp
from .haproxy import Haproxy, HaproxyTcp
from .nginx import NginxAlone
from .rathole import NginxRathole, RatholePlain, RatholeTcp, RatholeUdp
from .sallyport import SallyportHttps, SallyportSsh, SallyportTcp, SallyportUdp
from .ssh import OpenSsh, Sish

__all__ = ["DOMAIN", "ECHO", "ECHO_PORT", "KINDS", "ORIGIN_PORT", "PAGES", "SINK", "SINK_PORT"]

#: set of rows -> who is compared in it; two of one name in different sets are the same program in different ways
KINDS = {
    "https": [SallyportHttps, FrpHttps, NginxFrp, NginxRathole, Haproxy, NginxAlone],
    "tcp": [SallyportTcp, FrpTcp, FrpTcpPool, RatholeTcp, RatholePlain, HaproxyTcp, OpenSsh],
    "udp": [SallyportUdp, FrpUdp, RatholeUdp],
    "ssh": [SallyportSsh, OpenSsh, Sish],
}
