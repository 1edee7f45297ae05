"""Who opens connections from few local ports: connectx, and what is otherwise done."""

from .base import Contender


class Technique(Contender):
    """A way to open a socket. Nothing is started: the example of io/connectx has them all."""

    #: It is no tunnel.
    is_peer = False
    #: protocol -> the name of the example
    techniques = {}

    @classmethod
    def versions(cls, bench):
        return {}

    def commands(self):
        return [f"connections {name}" for name in self.techniques.values()]


class Connectx(Technique):
    name = "sallyport"
    about = "io/connectx, with a source address"
    is_peer = True
    techniques = {"tcp": "tcp-connectx", "udp": "udp-connectx"}


class Bind(Technique):
    name = "bind"
    about = "bind(2) to the source address, then connect(2)"
    techniques = {"tcp": "tcp-bind", "udp": "udp-bind"}


class BindNoPort(Technique):
    name = "bind-no-port"
    about = "the same with IP_BIND_ADDRESS_NO_PORT, which UDP does not heed"
    rows = ("ports_tcp",)
    techniques = {"tcp": "tcp-no-port"}


class BindReuse(Technique):
    name = "bind-reuseaddr"
    about = "the same with SO_REUSEADDR, by which UDP sockets get four-tuples of others"
    rows = ("ports_udp",)
    techniques = {"udp": "udp-reuseaddr"}
