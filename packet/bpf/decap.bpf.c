// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * An edge behind a balancer: takes packets out of their tunnels, and gives the kernel those of its connections.
 *
 * A packet of TCP that begins no connection, and whose connection is not here, goes on to the second edge that the
 * balancer has named. That edge gets no further name, so a packet goes on once.
 */
#include "dump.h"
#include "syncookie.h"
#include "tunnel.h"

/* Balancers and other edges. */
#define DECAP_PEERS 2048
/* Addresses of services and of slices. */
#define DECAP_ADDRESSES 4096
#define DECAP_LOCALS 256

enum { PEER_BALANCER = 1, PEER_MATE = 2 };

struct decap_settings {
	__be16 gue_port;
	__u8 has_second;
	__u8 zero;
};

struct address_key {
	__u32 address[4];
	__u32 is_v6;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct decap_settings);
} decap_set SEC(".maps");

/* Who may send encapsulated packets: PEER_*. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DECAP_PEERS);
	__type(key, struct address_key);
	__type(value, __u32);
} decap_peers SEC(".maps");

/* The addresses that packets inside are for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DECAP_ADDRESSES);
	__type(key, struct address_key);
	__type(value, __u32);
} decap_addresses SEC(".maps");

/* This machine's own addresses, that encapsulated packets are for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DECAP_LOCALS);
	__type(key, struct address_key);
	__type(value, __u32);
} decap_locals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROWS * MAX_REASONS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

INLINE struct port *port_of(__u32 ifindex)
{
	__u32 slot = ifindex & PORT_MASK;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);

	return port && port->ifindex == ifindex ? port : (void *)0;
}

/* The value of an address in a map, 0 for none. */
#define VALUE_OF(map, words, v6) ({ \
	struct address_key _key = { .is_v6 = (v6) }; \
	__u32 *_value; \
	_key.address[0] = (words)[0]; \
	if (v6) { \
		_key.address[1] = (words)[1]; \
		_key.address[2] = (words)[2]; \
		_key.address[3] = (words)[3]; \
	} \
	_value = bpf_map_lookup_elem(&(map), &_key); \
	_value ? *_value : 0; \
})

/* Whether the last packet of a handshake answers a cookie of this machine: then its connection is here. */
INLINE int has_cookie(struct xdp_md *ctx, struct bpf_sock *socket, int is_v6)
{
	if (is_v6) {
		struct ipv6 *ip = place(ctx, AT_IP);
		__u8 *tcp = (void *)(ip + 1);

		if ((void *)(tcp + 20) > limit(ctx))
			return 0;
		return !bpf_tcp_check_syncookie(socket, ip, sizeof(*ip), tcp, 20);
	} else {
		struct ipv4 *ip = place(ctx, AT_IP);
		__u8 *tcp = (void *)(ip + 1);

		if ((void *)(tcp + 20) > limit(ctx))
			return 0;
		return !bpf_tcp_check_syncookie(socket, ip, sizeof(*ip), tcp, 20);
	}
}

/* Whether the connection of a packet is here, or began here without being one yet. */
NOINLINE int is_here(struct xdp_md *ctx, struct flow *flow)
{
	struct bpf_sock *socket;
	int found;

	if (!flow)
		return 1;
	socket = socket_of(ctx, flow);
	if (!socket)
		return 0;
	found = socket->state != TCP_LISTEN;
	if (!found && !flow->is_error && (flow->flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		found = has_cookie(ctx, socket, flow->is_v6);
	bpf_sk_release(socket);
	return found;
}

/* What is known of a packet. */
struct arrival {
	struct tunnel tunnel;
	struct flow flow;
	struct port *from;
	/* This machine's address that the packet was for, in the family of the outer header. */
	__u32 own[4];
	__u8 is_v6;
	__u8 has_second;
	__be16 gue_port;
};

/* Reads the outer headers, and who has sent them. */
INLINE enum reason admit(struct xdp_md *ctx, struct arrival *arrival, struct bpf_fib_lookup *fib)
{
	struct ethernet *ethernet = place(ctx, 0);
	struct packet packet = {};
	struct decap_settings *settings;
	__u32 zero = 0, peer;
	enum reason reason;

	arrival->from = port_of(ctx->ingress_ifindex);
	if (!arrival->from)
		return REASON_OTHER_PORT;
	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	if (ethernet->proto != be16(ETH_P_IP) && ethernet->proto != be16(ETH_P_IPV6))
		return REASON_NOT_IP;
	if (!is_same_mac(ethernet->dest, arrival->from->mac))
		return REASON_OTHER_HOST;
	arrival->is_v6 = ethernet->proto == be16(ETH_P_IPV6);
	reason = arrival->is_v6 ? read_v6(ctx, AT_IP, &packet, fib) : read_plain_v4(ctx, &packet, fib);
	settings = bpf_map_lookup_elem(&decap_set, &zero);
	/* The kernel judges all other packets itself, the wrong ones too. */
	if (reason != REASON_FORWARDED || !settings || !is_tunnel(fib, settings->gue_port))
		return REASON_NOT_VIRTUAL;
	if (!VALUE_OF(decap_locals, fib->ipv6_dst, arrival->is_v6))
		return REASON_NOT_VIRTUAL;
	peer = VALUE_OF(decap_peers, fib->ipv6_src, arrival->is_v6);
	if (!peer)
		return REASON_STRANGER;
	reason = read_tunnel(ctx, fib, &arrival->tunnel);
	if (reason != REASON_FORWARDED)
		return reason;
	/* Only a balancer names a second edge. */
	arrival->has_second = settings->has_second && peer == PEER_BALANCER && arrival->tunnel.second_family;
	arrival->gue_port = settings->gue_port;
	arrival->own[0] = fib->ipv6_dst[0];
	if (arrival->is_v6)
		__builtin_memcpy(arrival->own, fib->ipv6_dst, 16);
	return REASON_FORWARDED;
}

/* Takes the packet out, and reads it. It cannot go to the kernel from here on but as what was inside. */
INLINE enum reason take_out(struct xdp_md *ctx, struct arrival *arrival, struct bpf_fib_lookup *fib)
{
	struct packet packet = {};
	enum reason reason = unwrap(ctx, &arrival->tunnel);

	if (reason != REASON_FORWARDED)
		return reason;
	__builtin_memset(fib, 0, sizeof(*fib));
	reason = arrival->tunnel.inner_is_v6 ? read_v6(ctx, AT_IP, &packet, fib) : read_plain_v4(ctx, &packet, fib);
	if (reason != REASON_FORWARDED)
		return reason >= REASON_BLACKHOLE ? reason : REASON_TUNNEL;
	if (packet.has_options)
		return REASON_TUNNEL;
	reason = read_flow(ctx, fib, &arrival->flow);
	if (reason != REASON_FORWARDED)
		return reason;
	if (!VALUE_OF(decap_addresses, fib->ipv6_dst, arrival->flow.is_v6))
		return REASON_NO_ADDRESS;
	reason = shield_cookie(ctx, &arrival->flow, fib);
	return reason == REASON_FORWARDED ? REASON_DECAPSULATED : reason;
}

/* Sends the packet on to the second edge. */
INLINE enum reason send_on(struct xdp_md *ctx, struct arrival *arrival, struct bpf_fib_lookup *fib)
{
	struct route_out out = {};
	struct ethernet *ethernet, saved;
	enum reason reason;
	long result;

	out.family = arrival->tunnel.second_family;
	out.is_gue = 1;
	out.inner_is_v6 = arrival->flow.is_v6;
	out.tos = arrival->flow.tos;
	out.length = arrival->flow.length;
	out.port = arrival->gue_port;
	out.source_port = be16(0xc000 | (flow_hash(&arrival->flow, 0) & 0x3fff));
	__builtin_memcpy(out.source, arrival->own, 16);
	__builtin_memcpy(out.dest, arrival->tunnel.second, 16);
	out.overhead = overhead_of(&out);
	result = ask_way(ctx, &out, fib);
	reason = wrap(ctx, &out);
	if (reason != REASON_FORWARDED)
		return reason;
	if (result == BPF_FIB_LKUP_RET_SUCCESS) {
		reason = address_frame(ctx, fib);
	} else {
		/* An edge that does not forward has no answer: the one that has sent the frame knows the way. */
		ethernet = place(ctx, 0);
		if ((void *)(ethernet + 1) > limit(ctx))
			return REASON_TRUNCATED;
		saved = *ethernet;
		__builtin_memcpy(ethernet->dest, saved.source, 6);
		__builtin_memcpy(ethernet->source, saved.dest, 6);
		fib->ifindex = ctx->ingress_ifindex;
	}
	return reason == REASON_FORWARDED ? REASON_SECOND_CHANCE : reason;
}

/* Whether a packet belongs to a connection that is not here, and has somewhere else to go. */
INLINE int is_elsewhere(struct xdp_md *ctx, struct arrival *arrival)
{
	struct flow *flow = &arrival->flow;

	if (!arrival->has_second || flow->protocol != PROTO_TCP || flow->is_fragment)
		return 0;
	if (!flow->is_error && (flow->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return 0;
	/* The source of what is sent on is of the family that the packet came by. */
	if (arrival->is_v6 != (arrival->tunnel.second_family == 6))
		return 0;
	if (VALUE_OF(decap_peers, arrival->tunnel.second, arrival->tunnel.second_family == 6) != PEER_MATE)
		return 0;
	return !is_here(ctx, flow);
}

SEC("xdp")
int sallyport_decap(struct xdp_md *ctx)
{
	struct arrival arrival = {};
	struct bpf_fib_lookup fib = {};
	__u64 bytes = bytes_of(ctx);
	struct dump *dump = dump_begin(ctx);
	enum reason reason = admit(ctx, &arrival, &fib);
	struct counter *counter;
	__u32 key;
	int is_sent;

	if (reason == REASON_FORWARDED)
		reason = take_out(ctx, &arrival, &fib);
	if (reason == REASON_DECAPSULATED && is_elsewhere(ctx, &arrival))
		reason = send_on(ctx, &arrival, &fib);
	key = (arrival.from ? arrival.from->row : 0) * MAX_REASONS + reason;
	counter = bpf_map_lookup_elem(&counters, &key);
	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
	is_sent = reason == REASON_SECOND_CHANCE || reason == REASON_COOKIE_SENT;
	dump_end(ctx, dump, reason, arrival.from, is_sent ? port_of(fib.ifindex) : (void *)0);
	if (is_sent)
		return fib.ifindex == ctx->ingress_ifindex ? XDP_TX : bpf_redirect(fib.ifindex, 0);
	if (reason == REASON_DECAPSULATED || reason == REASON_NOT_VIRTUAL || reason < REASON_BLACKHOLE)
		return XDP_PASS;
	return XDP_DROP;
}

/* The kernel gives its routes only to programs under a licence that the GPL is compatible with. */
const char terms[] SEC("license") = "GPL";
