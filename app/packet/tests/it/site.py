"""What the machines of a site send and receive.

serve NAME PORT ADDRESS...: a server of TCP and UDP that answers everything with its name
hold ADDRESS PORT NUMBER: opens connections, and obeys the words on its standard input:
    ask: sends on every connection, and says how many answer and how many are broken
    open NUMBER: opens new connections, and says how many each edge has
datagram ADDRESS PORT HEX [NUMBER]: datagrams from many ports, and how many each edge has answered
quiet ADDRESS PORT HEX: one datagram without an answer
learn ADDRESS PORT SIZE: sends one that is too big, and says which MTU the kernel has learned
too-big DEVICE MAC ADDRESS PORT: an error of a router that a packet from port 80 of ADDRESS to this PORT was too big
count ADDRESS: a server of UDP that acknowledges windows
windows ADDRESS PACKETS STOP: numbered packets in acknowledged windows, until PACKETS are sent and the file STOP is there
raw DEVICE HEX...: frames as they are
dial ADDRESS SOURCE FIRST LAST NUMBER: connections from a range of ports, each of which must be answered
"""
import collections, json, os, select, selectors, socket, struct, sys

ANSWER = float(os.environ.get("ANSWER", "30"))
WINDOW = 64


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def tcp(address, port, timeout=ANSWER):
    return socket.create_connection((address, int(port)), timeout)


def serve(name, port, *addresses):
    selector = selectors.DefaultSelector()
    for address in addresses:
        listener = socket.create_server((address, int(port)), family=family(address), backlog=4096)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, "listen")
        datagrams = socket.socket(family(address), socket.SOCK_DGRAM)
        datagrams.bind((address, int(port)))
        selector.register(datagrams, selectors.EVENT_READ, "datagram")
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.data == "listen":
                peer, _ = key.fileobj.accept()
                selector.register(peer, selectors.EVENT_READ, "peer")
            elif key.data == "datagram":
                _, peer = key.fileobj.recvfrom(65536)
                key.fileobj.sendto(name.encode(), peer)
            else:
                try:
                    data = key.fileobj.recv(65536)
                    if data:
                        key.fileobj.sendall((name + "\n").encode())
                        continue
                except OSError:
                    pass
                selector.unregister(key.fileobj)
                key.fileobj.close()


def answer(peer, timeout):
    peer.settimeout(timeout)
    try:
        peer.sendall(b"x")
        return peer.recv(64).decode().strip()
    except OSError:
        return ""


def open_one(address, port):
    peer = tcp(address, port)
    return peer, answer(peer, ANSWER)


def hold(address, port, number):
    peers = [open_one(address, port) for _ in range(int(number))]
    edges = collections.Counter(name for _, name in peers)
    ports = {peer.getsockname()[1]: name for peer, name in peers}
    print(json.dumps({"edges": edges, "ports": ports}), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "ask":
            # A broken connection is reset, or stays silent.
            wait = float(rest[0]) if rest else ANSWER
            moved, alive, broken = 0, 0, {}
            for peer, name in peers:
                said = answer(peer, wait)
                alive += said == name
                moved += said not in ("", name)
                if said != name:
                    broken[peer.getsockname()[1]] = name
            print(json.dumps({"alive": alive, "moved": moved, "broken": broken}), flush=True)
        if word == "open":
            opened = [open_one(address, port) for _ in range(int(rest[0]))]
            print(json.dumps(collections.Counter(name for _, name in opened)), flush=True)
            for peer, _ in opened:
                peer.close()


def datagram(address, port, data, number="1"):
    names = collections.Counter()
    for _ in range(int(number)):
        sock = socket.socket(family(address), socket.SOCK_DGRAM)
        sock.settimeout(ANSWER)
        sock.connect((address, int(port)))
        sock.send(bytes.fromhex(data))
        names[sock.recv(64).decode()] += 1
    print(json.dumps(names))


def quiet(address, port, data):
    socket.socket(family(address), socket.SOCK_DGRAM).sendto(bytes.fromhex(data), (address, int(port)))
    print("sent")


def learn(address, port, size):
    is_v6 = ":" in address
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    level = socket.IPPROTO_IPV6 if is_v6 else socket.IPPROTO_IP
    sock.setsockopt(level, 25 if is_v6 else 11, 1)  # IP_RECVERR
    sock.setsockopt(level, 23 if is_v6 else 10, 2)  # IP_MTU_DISCOVER: DO
    sock.connect((address, int(port)))
    sock.send(bytes(int(size)))
    poll = select.poll()
    poll.register(sock, select.POLLERR)
    if not poll.poll(ANSWER * 1000):
        sys.exit("nobody has said that it was too big")
    _, ancillary, _, _ = sock.recvmsg(65536, 1024, socket.MSG_ERRQUEUE)
    print(struct.unpack("=IBBBBII", ancillary[0][2][:16])[5])


def total(data):
    number = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while number >> 16:
        number = (number & 0xFFFF) + (number >> 16)
    return ~number & 0xFFFF


def header(protocol, source, dest, payload):
    source, dest = socket.inet_aton(source), socket.inet_aton(dest)
    made = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0, source, dest)
    return made[:10] + struct.pack("!H", total(made)) + made[12:] + payload


def too_big(device, mac, address, port):
    client = "10.1.0.2"
    inside = header(6, address, client, struct.pack("!HHI", 80, int(port), 0) + bytes(12))[:28]
    message = struct.pack("!BBHHH", 3, 4, 0, 0, 1300) + inside
    message = message[:2] + struct.pack("!H", total(message)) + message[4:]
    raw(device, mac + "020000000007" + "0800" + header(1, client, address, message).hex())


def count(address):
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((address, 9))
    print("ready", flush=True)
    seen = 0
    while True:
        data, peer = sock.recvfrom(64)
        seen += 1
        if seen % WINDOW == 0:
            sock.sendto(struct.pack("!Q", seen), peer)


def windows(address, packets, stop):
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.connect((address, 9))
    sock.settimeout(ANSWER)
    sent = 0
    while sent < int(packets) or not os.path.exists(stop):
        for _ in range(WINDOW):
            sock.send(struct.pack("!Q", sent))
            sent += 1
        try:
            (seen,) = struct.unpack("!Q", sock.recv(64))
        except TimeoutError:
            sys.exit(f"of {sent} packets some were lost")
        if seen != sent:
            sys.exit(f"{sent} packets were sent, and {seen} came")
    print(sent)


def raw(device, *frames):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((device, 0))
    for frame in frames:
        sock.send(bytes.fromhex(frame))
    print("sent")


def dial(address, port, source, first, last, number):
    answered = 0
    for _ in range(int(number)):
        sock = socket.socket(family(address), socket.SOCK_STREAM)
        sock.settimeout(ANSWER)
        sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        sock.setsockopt(socket.IPPROTO_IP, 51, struct.pack("=I", int(last) << 16 | int(first)))  # IP_LOCAL_PORT_RANGE
        sock.bind((source, 0))
        sock.connect((address, int(port)))
        assert int(first) <= sock.getsockname()[1] <= int(last), sock.getsockname()
        sock.sendall(b"x")
        answered += bool(sock.recv(64))
        sock.close()
    print(answered)


words = sys.argv[1:]
globals()[words[0].replace("-", "_")](*words[1:])
