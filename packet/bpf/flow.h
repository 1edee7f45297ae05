/* The flow of a packet to a virtual address: what a balancer chooses by, and an edge looks for a socket by. */
#ifndef SALLYPORT_FLOW_H
#define SALLYPORT_FLOW_H

#include "parse.h"

enum { PROTO_ICMP = 1, PROTO_IPIP = 4, PROTO_IPV6 = 41, PROTO_ICMPV6 = 58 };
enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };
/* Where IP starts: a balancer takes frames without tags. */
#define AT_IP ((__u32)sizeof(struct ethernet))

/*
 * `at` and `end` of parse.h, read anew each time: otherwise the compiler may copy 32 bits of a kept address, which the
 * kernel does not take for an address any more.
 */
INLINE void *place(struct xdp_md *ctx, __u32 offset)
{
	void *data;

	asm volatile("%0 = *(u32 *)(%1 + 0)" : "=r"(data) : "r"(ctx));
	return data + offset;
}

INLINE void *limit(struct xdp_md *ctx)
{
	void *data_end;

	asm volatile("%0 = *(u32 *)(%1 + 4)" : "=r"(data_end) : "r"(ctx));
	return data_end;
}

struct icmp {
	__u8 kind;
	__u8 code;
	__u16 check;
	__be16 id;
	__be16 sequence;
} __attribute__((packed));

/* A flow, from the client to this side. An ICMP error has that of the packet inside, turned around. */
struct flow {
	/* IPv4 in the first word. */
	__u32 source[4];
	__u32 dest[4];
	/* 0 without ports, and in fragments. */
	__be16 source_port;
	__be16 dest_port;
	__u8 protocol;
	__u8 is_v6;
	__u8 is_fragment;
	__u8 is_later_fragment;
	__u8 is_error;
	__u8 is_echo;
	__u8 is_echo_reply;
	/* The flags of TCP; 0 in an error. */
	__u8 flags;
	/* Bytes of the packet with its header of IP, and where the payload starts in the frame. */
	__u16 length;
	__u16 payload;
	__u8 tos;
	__u8 zero[3];
};

INLINE int is_same(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

INLINE __u32 flow_mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b1u;
	return hash ^ hash >> 15;
}

/* `flow_hash` in core/packet/src/parse/flow.rs. */
INLINE __u32 flow_hash(const struct flow *flow, __u32 seed)
{
	__u32 hash = flow_mix(seed, be32(flow->source[0]));

	if (flow->is_v6) {
		hash = flow_mix(hash, be32(flow->source[1]));
		hash = flow_mix(hash, be32(flow->source[2]));
		hash = flow_mix(hash, be32(flow->source[3]));
	}
	hash = flow_mix(hash, be32(flow->dest[0]));
	if (flow->is_v6) {
		hash = flow_mix(hash, be32(flow->dest[1]));
		hash = flow_mix(hash, be32(flow->dest[2]));
		hash = flow_mix(hash, be32(flow->dest[3]));
	}
	hash = flow_mix(hash, (__u32)be16(flow->source_port) << 16 | be16(flow->dest_port));
	hash = flow_mix(hash, flow->protocol);
	hash = (hash ^ hash >> 16) * 0x85ebca6bu;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
	return hash ^ hash >> 16;
}

/* `read_v4` of a header without options. The compiler leaves out what is for options. */
INLINE enum reason read_plain_v4(struct xdp_md *ctx, struct packet *packet, struct bpf_fib_lookup *fib)
{
	struct ipv4 *ip = at(ctx, AT_IP);

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	if (ip->version_ihl != 0x45)
		return ip->version_ihl >> 4 == 4 && (ip->version_ihl & 15) > 5 ? REASON_OPTIONS : REASON_MALFORMED;
	return read_v4(ctx, AT_IP, packet, fib);
}

/* Takes the flow of the packet inside an ICMP error of IPv4, which this side has sent. */
INLINE enum reason read_quote_v4(struct xdp_md *ctx, struct flow *flow)
{
	struct ipv4 *ip = place(ctx, AT_IP + sizeof(*ip) + sizeof(struct icmp));
	struct ports *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > limit(ctx) || ip->version_ihl != 0x45 || ip->fragment & be16(0x1fff))
		return REASON_MALFORMED;
	if (ip->source != flow->dest[0])
		return REASON_MALFORMED;
	flow->source[0] = ip->dest;
	flow->protocol = ip->proto;
	if (ip->proto != PROTO_TCP && ip->proto != PROTO_UDP)
		return REASON_FORWARDED;
	flow->source_port = ports->dest;
	flow->dest_port = ports->source;
	return REASON_FORWARDED;
}

INLINE enum reason read_quote_v6(struct xdp_md *ctx, struct flow *flow)
{
	struct ipv6 *ip = place(ctx, AT_IP + sizeof(*ip) + sizeof(struct icmp));
	struct ports *ports = (void *)(ip + 1);

	if ((void *)(ports + 1) > limit(ctx) || (ip->flow & be32(0xf0000000)) != be32(0x60000000))
		return REASON_MALFORMED;
	if (!is_same(ip->source, flow->dest))
		return REASON_MALFORMED;
	__builtin_memcpy(flow->source, ip->dest, 16);
	flow->protocol = ip->next;
	if (ip->next != PROTO_TCP && ip->next != PROTO_UDP)
		return REASON_FORWARDED;
	flow->source_port = ports->dest;
	flow->dest_port = ports->source;
	return REASON_FORWARDED;
}

/* Reads ICMP: an echo, an error with the packet inside, or something that has no edge. */
NOINLINE int read_icmp_v4(struct xdp_md *ctx, struct flow *flow)
{
	struct icmp *icmp = place(ctx, AT_IP + sizeof(struct ipv4));

	if (!flow || (void *)(icmp + 1) > limit(ctx))
		return REASON_TRUNCATED;
	flow->is_echo = icmp->kind == 8;
	flow->is_echo_reply = icmp->kind == 0;
	/* The identifier of an answer is the port that a machine has chosen. */
	if (flow->is_echo_reply)
		flow->dest_port = icmp->id;
	if (icmp->kind != 3 && icmp->kind != 11 && icmp->kind != 12)
		return REASON_FORWARDED;
	flow->is_error = 1;
	return read_quote_v4(ctx, flow);
}

NOINLINE int read_icmp_v6(struct xdp_md *ctx, struct flow *flow)
{
	struct icmp *icmp = place(ctx, AT_IP + sizeof(struct ipv6));

	if (!flow || (void *)(icmp + 1) > limit(ctx))
		return REASON_TRUNCATED;
	flow->is_echo = icmp->kind == 128;
	flow->is_echo_reply = icmp->kind == 129;
	if (flow->is_echo_reply)
		flow->dest_port = icmp->id;
	if (icmp->kind < 1 || icmp->kind > 4)
		return REASON_FORWARDED;
	flow->is_error = 1;
	return read_quote_v6(ctx, flow);
}

/* The header of TCP or UDP. */
INLINE enum reason read_transport(struct xdp_md *ctx, struct flow *flow, __u32 offset)
{
	struct ports *ports = place(ctx, offset);
	__u8 *flags = place(ctx, offset + 13);

	if ((void *)(ports + 1) > limit(ctx))
		return REASON_TRUNCATED;
	flow->source_port = ports->source;
	flow->dest_port = ports->dest;
	if (flow->protocol != PROTO_TCP)
		return REASON_FORWARDED;
	if ((void *)(flags + 7) > limit(ctx))
		return REASON_TRUNCATED;
	flow->flags = *flags;
	return REASON_FORWARDED;
}

/* Reads the flow of a packet whose header of IP was read. Nothing is changed. */
INLINE enum reason read_flow(struct xdp_md *ctx, const struct bpf_fib_lookup *fib, struct flow *flow)
{
	__u32 offset = AT_IP + sizeof(struct ipv4);

	if (fib->family == AF_INET) {
		struct ipv4 *ip = place(ctx, AT_IP);

		if ((void *)(ip + 1) > limit(ctx))
			return REASON_TRUNCATED;
		flow->source[0] = ip->source;
		flow->dest[0] = ip->dest;
		flow->protocol = ip->proto;
		flow->length = be16(ip->total);
		flow->tos = ip->tos;
		flow->is_fragment = (ip->fragment & be16(0x3fff)) != 0;
		flow->is_later_fragment = (ip->fragment & be16(0x1fff)) != 0;
	} else {
		struct ipv6 *ip = place(ctx, AT_IP);

		offset = AT_IP + sizeof(*ip);
		if ((void *)(ip + 1) > limit(ctx))
			return REASON_TRUNCATED;
		__builtin_memcpy(flow->source, ip->source, 16);
		__builtin_memcpy(flow->dest, ip->dest, 16);
		flow->is_v6 = 1;
		flow->protocol = ip->next;
		flow->length = be16(ip->payload) + sizeof(*ip);
		flow->tos = be32(ip->flow) >> 20;
		if (ip->next == PROTO_FRAGMENT) {
			__u8 *header = place(ctx, offset);

			if ((void *)(header + 8) > limit(ctx))
				return REASON_TRUNCATED;
			flow->protocol = header[0];
			flow->is_fragment = 1;
			flow->is_later_fragment = header[2] || header[3] & 0xf8;
		}
	}
	flow->payload = offset;
	if (flow->is_fragment)
		return REASON_FORWARDED;
	/* Two calls with a constant each, so that the compiler knows every offset. */
	if (flow->protocol == PROTO_TCP || flow->protocol == PROTO_UDP)
		return flow->is_v6 ? read_transport(ctx, flow, AT_IP + sizeof(struct ipv6))
				   : read_transport(ctx, flow, AT_IP + sizeof(struct ipv4));
	if (flow->protocol == (flow->is_v6 ? PROTO_ICMPV6 : PROTO_ICMP))
		return flow->is_v6 ? read_icmp_v6(ctx, flow) : read_icmp_v4(ctx, flow);
	return REASON_FORWARDED;
}

#endif
