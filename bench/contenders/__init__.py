"""Who is compared, and how each is set up: origins of a private machine, brought to the public by an encrypted tunnel.

Every server listens on 127.0.0.1. Clients reach their server at `leg`: 127.0.0.1 itself, or 127.0.0.2 where the delay
relay listens. Each contender uses the ciphers and defaults that it comes with.
"""

from .base import DOMAIN, ECHO, ECHO_PORT, ORIGIN_PORT, PAGES, SINK, SINK_PORT
from .bore import Bore
from .chisel import Chisel
from .frp import FrpHttps, FrpTcp, FrpTcpPool, FrpUdp, NginxFrp
from .haproxy import Haproxy, HaproxyH2, HaproxyTcp
from .http3 import Caddy, NginxQuic, SallyportHttp2, SallyportHttp3
from .least import Least, Wait
from .names import Gdnsd, Knot, KnotOnlineSign, Nsd, SallyportNames
from .nginx import NginxAlone
from .packet import (
    Ipvs, Kernel, KernelTracked, NftSnat, SallyportBalance, SallyportFib, SallyportLookup, SallyportNat, SallyportNatConntrack, SallyportRouter,
    Trie, Vpp, XdpForward,
)
from .ports import Bind, BindNoPort, BindReuse, Connectx
from .rathole import NginxRathole, NginxRatholePlain, RatholePlain, RatholeTcp, RatholeUdp
from .relay import HaproxyThree, HaproxyThreeH2, SallyportRelay
from .sallyport import (
    SallyportCubic, SallyportHttps, SallyportLossy, SallyportQuic, SallyportQuicBbr, SallyportSsh, SallyportTcp, SallyportUdp,
)
from .ssh import OpenSsh, Sish

__all__ = ["DOMAIN", "ECHO", "ECHO_PORT", "KINDS", "MAIN_KINDS", "ORIGIN_PORT", "PAGES", "REFERENCES", "SINK", "SINK_PORT"]

#: set of rows -> who is compared in it; two of one name in different sets are the same program in different ways
KINDS = {
    "https": [SallyportHttps, FrpHttps, NginxFrp, NginxRathole, NginxRatholePlain, Haproxy, HaproxyH2, NginxAlone],
    "tcp": [SallyportTcp, FrpTcp, FrpTcpPool, RatholeTcp, RatholePlain, HaproxyTcp, OpenSsh, Chisel, Bore, Least, Wait],
    "hard": [SallyportTcp, FrpTcp, FrpTcpPool, RatholeTcp, RatholePlain, HaproxyTcp, OpenSsh, Chisel, Bore],
    "udp": [SallyportUdp, FrpUdp, RatholeUdp],
    "http3": [SallyportHttp3, SallyportHttp2, Caddy, NginxQuic],
    "relay": [SallyportRelay, HaproxyThree, HaproxyThreeH2],
    "ssh": [SallyportSsh, OpenSsh, Sish],
    "loss": [SallyportLossy, SallyportCubic, SallyportQuic, SallyportQuicBbr, FrpTcpPool, RatholeTcp],
    "floods": [SallyportHttps, Haproxy, NginxAlone],
    "names": [SallyportNames, Knot, KnotOnlineSign, Nsd, Gdnsd],
    "packet": [SallyportRouter, SallyportFib, SallyportLookup, Kernel, KernelTracked, SallyportNat, SallyportNatConntrack, NftSnat,
               SallyportBalance, Ipvs, XdpForward, Vpp, Trie],
    "ports": [Connectx, Bind, BindNoPort, BindReuse],
    "growth": [SallyportHttps, Haproxy, NginxAlone],
}
#: The same for the short benchmark: the best of the peers, and the references that targets name.
MAIN_KINDS = {
    "https": [SallyportHttps, FrpHttps, NginxRathole, NginxRatholePlain, HaproxyH2],
    "tcp": [SallyportTcp, FrpTcpPool, RatholeTcp, RatholePlain, HaproxyTcp],
    "udp": [SallyportUdp, FrpUdp],
}
#: Names of those that are no peers.
REFERENCES = {kind.name for kinds in KINDS.values() for kind in kinds if not kind.is_peer}
