"""What the machines of a test send and receive.

probe TO [ttl=N] [size=N] [want=N] [df=1] [from=PORT] [source=ADDRESS] [answer=0] [retry=1]: one packet, and what came back
flows TO NUMBER: one packet of each port, and its echo
echo: an echo server of UDP; it answers as many bytes as a question wants
count: an echo server that acknowledges windows
windows TO PACKETS STOP: numbered packets in acknowledged windows, until PACKETS are sent and the file STOP is there
tcp-serve: sends back the SHA-256 of what came
tcp TO BYTES: sends bytes over TCP, and compares
raw DEVICE HEX COUNT: frames as they are
several DEVICE HEX...: one frame after the other
frames DEVICE FILE: the frames of a file, one a line
say TO WORDS: words to port 7
watch DEVICE MARK: prints packets of IP that come, with their sources, until one has MARK in it
sniff DEVICE COUNT: prints frames of UDP to port 9, with their tags
"""
import hashlib, os, select, socket, struct, sys

ANSWER = float(os.environ.get("ANSWER", "30"))
WINDOW = 64


def udp(to):
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    return family, socket.socket(family, socket.SOCK_DGRAM)


def probe(to, *options):
    options = dict(option.split("=", 1) for option in options)
    family, sock = udp(to)
    is_v6 = family == socket.AF_INET6
    level = socket.IPPROTO_IPV6 if is_v6 else socket.IPPROTO_IP
    sock.setsockopt(level, 25 if is_v6 else 11, 1)  # IP_RECVERR
    if "ttl" in options:
        sock.setsockopt(level, socket.IPV6_UNICAST_HOPS if is_v6 else socket.IP_TTL, int(options["ttl"]))
    if "df" in options and not is_v6:
        sock.setsockopt(level, 10, 3)  # IP_MTU_DISCOVER: PROBE
    if "df" in options and is_v6:
        sock.setsockopt(level, 23, 3)
    sock.bind((options.get("source", ""), int(options.get("from", "0"))))
    packet = (b"want %d " % int(options["want"]) if "want" in options else b"").ljust(int(options.get("size", "32")), b"x")
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    # The kernel bounds its ICMP errors, also by those of this whole machine: then another packet goes out.
    turns = int(ANSWER) if options.get("retry") else 1
    for _ in range(turns):
        sock.sendto(packet, (to, int(options.get("to", "9"))))
        if options.get("answer") == "0":
            return print("sent")
        if poll.poll(ANSWER * 1000 / turns):
            break
    else:
        sys.exit("nothing came back from " + to)
    try:
        data, _ = sock.recvfrom(65536, socket.MSG_DONTWAIT)
        return print("echo", len(data))
    except OSError:
        pass
    _, ancillary, _, _ = sock.recvmsg(65536, 1024, socket.MSG_ERRQUEUE)
    for _, _, data in ancillary:
        number, origin, kind, code, _, info, _ = struct.unpack("=IBBBBII", data[:16])
        if len(data) < 24:
            continue
        by = socket.inet_ntop(family, data[24:40] if is_v6 else data[20:24])
        return print("icmp", kind, code, "by", by, "info", info)


def flows(to, number):
    for port in range(20000, 20000 + int(number)):
        _, sock = udp(to)
        sock.bind(("", port))
        sock.sendto(b"x", (to, 9))
        sock.settimeout(ANSWER)
        sock.recv(64)


def echo():
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", 9))
    print("ready", flush=True)
    while True:
        data, peer = sock.recvfrom(65536)
        if data.startswith(b"want "):
            data = bytes(int(data.split()[1]))
        sock.sendto(data, peer)


def count():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind(("192.0.2.7", 9))  # the sender is connected to this address
    print("ready", flush=True)
    seen = 0
    while True:
        data, peer = sock.recvfrom(64)
        seen += 1
        if seen % WINDOW == 0:
            sock.sendto(struct.pack("!Q", seen), peer)


def windows(to, packets, stop):
    _, sock = udp(to)
    sock.connect((to, 9))
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


def tcp_serve():
    server = socket.create_server(("", 80))
    print("ready", flush=True)
    while True:
        peer, _ = server.accept()
        digest = hashlib.sha256()
        while data := peer.recv(65536):
            digest.update(data)
        peer.sendall(digest.digest())
        peer.close()


def tcp(to, length):
    data = os.urandom(int(length))
    sock = socket.create_connection((to, 80), ANSWER)
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    answer = b""
    while part := sock.recv(64):
        answer += part
    print("same" if answer == hashlib.sha256(data).digest() else "different")


def raw(device, frame, times):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((device, 0))
    for _ in range(int(times)):
        sock.send(bytes.fromhex(frame))
    print("sent")


def several(device, *frames):
    for frame in frames:
        raw(device, frame, 1)


def frames(device, file):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((device, 0))
    with open(file) as lines:
        for line in lines:
            sock.send(bytes.fromhex(line))


def say(to, words):
    udp(to)[1].sendto(words.encode(), (to, 7))


def watch(device, mark):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.bind((device, 0))
    print("ready", flush=True)
    while True:
        data, address = sock.recvfrom(2048)
        if address[2] == 4 or data[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            continue
        if mark.encode() in data:
            return print("end", flush=True)
        is_v6 = data[12] == 0x86
        source = socket.inet_ntop(*((socket.AF_INET6, data[22:38]) if is_v6 else (socket.AF_INET, data[26:30])))
        # Neighbours say things to one another all the time.
        if not source.startswith("fe80:") and source != "::" and not (is_v6 and data[20] == 58):
            print(source, data.hex(), flush=True)


def sniff(device, times):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.setsockopt(263, 8, 1)  # SOL_PACKET, PACKET_AUXDATA
    sock.bind((device, 0))
    print("ready", flush=True)
    left = int(times)
    while left:
        data, ancillary, _, address = sock.recvmsg(2048, 256)
        tags = [struct.unpack("=IIIHHHH", aux[:20])[5:] for _, kind, aux in ancillary if kind == 8]
        tag = next((tci for tci, proto in tags if proto == 0x8100), 0)
        if data[12:14] == b"\x81\x00":
            tag, data = struct.unpack("!H", data[14:16])[0], data[:12] + data[16:]
        if address[2] == 4 or data[12:14] != b"\x08\x00" or data[23] != 17 or data[36:38] != b"\x00\x09":
            continue
        print(tag & 4095, "ttl", data[22], flush=True)
        left -= 1


words = sys.argv[1:]
globals()[words[0].replace("-", "_")](*words[1:])
