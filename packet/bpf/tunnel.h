/*
 * Tunnels between balancers and edges: IP in IP (RFC 2003, RFC 2473), and Generic UDP Encapsulation.
 *
 * A header of GUE may have private data: the address of the second edge. Its first byte is TUNNEL_SECOND, and its second
 * byte the family, 4 or 6. The address follows after four bytes.
 */
#ifndef SALLYPORT_TUNNEL_H
#define SALLYPORT_TUNNEL_H

#include "flow.h"

#define TUNNEL_SECOND 1
/* The time to live of outer headers. */
#define TUNNEL_TTL 64
/* Bytes of the packet that an ICMP error quotes. */
#define QUOTE_V4 28
#define QUOTE_V6 88

struct udp {
	__be16 source;
	__be16 dest;
	__be16 length;
	__u16 check;
} __attribute__((packed));

struct gue {
	/* Version 0 in two bits, the bit of control messages, and the words that follow this header. */
	__u8 words;
	__u8 proto;
	__be16 flags;
} __attribute__((packed));

struct gue_second {
	__u8 kind;
	__u8 family;
	__be16 zero;
	__u32 address[4];
} __attribute__((packed));

/* Where an encapsulated packet goes. Addresses of IPv4 are in the first word. */
struct route_out {
	__u32 source[4];
	__u32 dest[4];
	__u32 second[4];
	/* 4 or 6; 0 for no second edge. */
	__u8 family;
	__u8 second_family;
	__u8 is_gue;
	__u8 inner_is_v6;
	__u8 tos;
	__u8 zero;
	__be16 port;
	/* The source port of GUE, by the flow's hash, so that routers and queues spread flows. */
	__be16 source_port;
	/* Bytes of the packet inside, and of the headers before it. */
	__u16 length;
	__u16 overhead;
	__u16 zero2;
};

INLINE __u32 overhead_of(const struct route_out *out)
{
	__u32 bytes = out->family == 6 ? sizeof(struct ipv6) : sizeof(struct ipv4);

	if (!out->is_gue)
		return bytes;
	bytes += sizeof(struct udp) + sizeof(struct gue);
	if (out->second_family)
		bytes += out->second_family == 6 ? 20 : 8;
	return bytes;
}

/* Asks for the way to the outer destination. */
INLINE long ask_way(struct xdp_md *ctx, const struct route_out *out, struct bpf_fib_lookup *fib)
{
	__u8 inner = out->inner_is_v6 ? PROTO_IPV6 : PROTO_IPIP;
	__u32 length = out->length + out->overhead;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = out->family == 6 ? AF_INET6 : AF_INET;
	fib->l4_protocol = out->is_gue ? PROTO_UDP : inner;
	fib->sport = out->is_gue ? out->source_port : 0;
	fib->dport = out->is_gue ? out->port : 0;
	fib->tot_len = length > 0xffff ? 0xffff : length;
	fib->ifindex = ctx->ingress_ifindex;
	__builtin_memcpy(fib->ipv6_src, out->source, 16);
	__builtin_memcpy(fib->ipv6_dst, out->dest, 16);
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

INLINE int write_gue(struct xdp_md *ctx, const struct route_out *out, __u32 offset)
{
	struct udp *udp = place(ctx, offset);
	struct gue *gue = place(ctx, offset + sizeof(*udp));
	struct gue_second *second = place(ctx, offset + sizeof(*udp) + sizeof(*gue));
	__u32 words = out->second_family ? (out->second_family == 6 ? 5 : 2) : 0;

	if ((void *)(gue + 1) > limit(ctx))
		return 0;
	udp->source = out->source_port;
	udp->dest = out->port;
	udp->length = be16(out->length + sizeof(*udp) + sizeof(*gue) + 4 * words);
	/* None: the packet inside has its own (RFC 6935 and RFC 6936 for IPv6). */
	udp->check = 0;
	gue->words = words;
	gue->proto = out->inner_is_v6 ? PROTO_IPV6 : PROTO_IPIP;
	gue->flags = 0;
	if (!words)
		return 1;
	if ((void *)&second->address[1] > limit(ctx))
		return 0;
	second->kind = TUNNEL_SECOND;
	second->family = out->second_family;
	second->zero = 0;
	second->address[0] = out->second[0];
	if (words == 2)
		return 1;
	if ((void *)(second + 1) > limit(ctx))
		return 0;
	second->address[1] = out->second[1];
	second->address[2] = out->second[2];
	second->address[3] = out->second[3];
	return 1;
}

INLINE __u16 sum_of_v4(const struct ipv4 *ip)
{
	const __u16 *words = (const __u16 *)ip;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return ~sum;
}

/* Writes an outer header of IPv4. Routers must not fragment the packet: an edge could not read it. */
INLINE int write_outer_v4(struct xdp_md *ctx, const struct route_out *out, __u8 proto)
{
	struct ipv4 *ip = place(ctx, AT_IP);

	if ((void *)(ip + 1) > limit(ctx))
		return 0;
	ip->version_ihl = 0x45;
	/* Routers mark no congestion that an edge would not see (RFC 6040, section 4.1). */
	ip->tos = out->tos & 0xfc;
	ip->total = be16(out->length + out->overhead);
	ip->id = 0;
	ip->fragment = be16(0x4000);
	ip->ttl = TUNNEL_TTL;
	ip->proto = proto;
	ip->check = 0;
	ip->source = out->source[0];
	ip->dest = out->dest[0];
	ip->check = sum_of_v4(ip);
	return 1;
}

INLINE int write_outer_v6(struct xdp_md *ctx, const struct route_out *out, __u8 proto)
{
	struct ipv6 *ip = place(ctx, AT_IP);

	if ((void *)(ip + 1) > limit(ctx))
		return 0;
	ip->flow = be32(0x60000000u | (__u32)(out->tos & 0xfc) << 20);
	ip->payload = be16(out->length + out->overhead - sizeof(*ip));
	ip->next = proto;
	ip->hops = TUNNEL_TTL;
	__builtin_memcpy(ip->source, out->source, 16);
	__builtin_memcpy(ip->dest, out->dest, 16);
	return 1;
}

/* Writes the outer headers before the packet. The addresses of the link stay. */
INLINE enum reason wrap(struct xdp_md *ctx, const struct route_out *out)
{
	__u8 inner = out->inner_is_v6 ? PROTO_IPV6 : PROTO_IPIP;
	__u8 proto = out->is_gue ? PROTO_UDP : inner;
	struct ethernet *ethernet = place(ctx, 0), saved;

	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	saved = *ethernet;
	if (bpf_xdp_adjust_head(ctx, -(int)out->overhead))
		return REASON_NO_ROOM;
	ethernet = place(ctx, 0);
	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	*ethernet = saved;
	if (out->family == 6) {
		ethernet->proto = be16(ETH_P_IPV6);
		if (!write_outer_v6(ctx, out, proto))
			return REASON_TRUNCATED;
		if (out->is_gue && !write_gue(ctx, out, AT_IP + sizeof(struct ipv6)))
			return REASON_TRUNCATED;
	} else {
		ethernet->proto = be16(ETH_P_IP);
		if (!write_outer_v4(ctx, out, proto))
			return REASON_TRUNCATED;
		if (out->is_gue && !write_gue(ctx, out, AT_IP + sizeof(struct ipv4)))
			return REASON_TRUNCATED;
	}
	return REASON_FORWARDED;
}

/* Gives the frame the addresses of the next hop. */
INLINE enum reason address_frame(struct xdp_md *ctx, const struct bpf_fib_lookup *fib)
{
	struct ethernet *ethernet = place(ctx, 0);

	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(ethernet->dest, fib->dmac, 6);
	__builtin_memcpy(ethernet->source, fib->smac, 6);
	return REASON_FORWARDED;
}

/* What an encapsulated packet says. */
struct tunnel {
	__u32 second[4];
	__u8 second_family;
	__u8 inner_is_v6;
	__u16 overhead;
};

/* Reads GUE behind a header of IP. */
INLINE enum reason read_gue(struct xdp_md *ctx, __u32 offset, struct tunnel *tunnel)
{
	struct gue *gue = place(ctx, offset + sizeof(struct udp));
	struct gue_second *second = (void *)(gue + 1);
	__u32 words;

	if ((void *)(gue + 1) > limit(ctx))
		return REASON_TUNNEL;
	/* Version 0, no control message, and no flags that this program would have to know. */
	if (gue->words & 0xe0 || gue->flags)
		return REASON_TUNNEL;
	if (gue->proto != PROTO_IPIP && gue->proto != PROTO_IPV6)
		return REASON_TUNNEL;
	words = gue->words & 31;
	tunnel->inner_is_v6 = gue->proto == PROTO_IPV6;
	tunnel->overhead = offset - AT_IP + sizeof(struct udp) + sizeof(*gue) + 4 * words;
	if (words != 2 && words != 5)
		return REASON_FORWARDED;
	if ((void *)&second->address[1] > limit(ctx))
		return REASON_TUNNEL;
	if (second->kind != TUNNEL_SECOND)
		return REASON_FORWARDED;
	if (words == 2 && second->family == 4) {
		tunnel->second_family = 4;
		tunnel->second[0] = second->address[0];
		return REASON_FORWARDED;
	}
	if (words != 5 || second->family != 6 || (void *)(second + 1) > limit(ctx))
		return REASON_TUNNEL;
	tunnel->second_family = 6;
	__builtin_memcpy(tunnel->second, second->address, 16);
	return REASON_FORWARDED;
}

/* Whether a packet is of the kind that travels in tunnels. Its header of IP was read. */
INLINE int is_tunnel(const struct bpf_fib_lookup *fib, __be16 gue_port)
{
	return fib->l4_protocol == PROTO_IPIP || fib->l4_protocol == PROTO_IPV6 ||
	       (fib->l4_protocol == PROTO_UDP && fib->dport == gue_port);
}

/* Reads the outer headers. Nothing is changed. */
INLINE enum reason read_tunnel(struct xdp_md *ctx, const struct bpf_fib_lookup *fib, struct tunnel *tunnel)
{
	if (fib->family == AF_INET) {
		struct ipv4 *ip = place(ctx, AT_IP);

		if ((void *)(ip + 1) > limit(ctx) || ip->version_ihl != 0x45 || ip->fragment & be16(0x3fff))
			return REASON_TUNNEL;
		if (fib->l4_protocol == PROTO_UDP)
			return read_gue(ctx, AT_IP + sizeof(*ip), tunnel);
		tunnel->overhead = sizeof(*ip);
	} else {
		if (fib->l4_protocol == PROTO_UDP)
			return read_gue(ctx, AT_IP + sizeof(struct ipv6), tunnel);
		tunnel->overhead = sizeof(struct ipv6);
	}
	tunnel->inner_is_v6 = fib->l4_protocol == PROTO_IPV6;
	return REASON_FORWARDED;
}

/* Removes the outer headers. */
INLINE enum reason unwrap(struct xdp_md *ctx, const struct tunnel *tunnel)
{
	struct ethernet *ethernet = place(ctx, 0), saved;

	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	saved = *ethernet;
	/* One that is shorter than its headers say has no packet inside. */
	if (bytes_of(ctx) < sizeof(saved) + tunnel->overhead + sizeof(struct ipv4))
		return REASON_TUNNEL;
	if (bpf_xdp_adjust_head(ctx, tunnel->overhead))
		return REASON_TUNNEL;
	ethernet = place(ctx, 0);
	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	*ethernet = saved;
	ethernet->proto = tunnel->inner_is_v6 ? be16(ETH_P_IPV6) : be16(ETH_P_IP);
	return REASON_FORWARDED;
}

/* Makes the frame an ICMP error to the client: fragmentation needed (RFC 1191). The quote is the packet's beginning. */
INLINE enum reason answer_too_big_v4(struct xdp_md *ctx, const struct flow *flow, __u32 mtu)
{
	const __u32 more = sizeof(struct ipv4) + sizeof(struct icmp);
	struct ethernet *ethernet = place(ctx, 0), saved;
	struct ipv4 *ip;
	struct icmp *icmp;
	__u16 *words;
	__u32 sum = 0;

	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	saved = *ethernet;
	if (bytes_of(ctx) < AT_IP + QUOTE_V4 ||
	    bpf_xdp_adjust_tail(ctx, (int)(AT_IP + QUOTE_V4) - (int)bytes_of(ctx)))
		return REASON_TOO_BIG_DROPPED;
	if (bpf_xdp_adjust_head(ctx, -(int)more))
		return REASON_NO_ROOM;
	ethernet = place(ctx, 0);
	ip = place(ctx, AT_IP);
	icmp = (void *)(ip + 1);
	words = (void *)icmp;
	if ((void *)words + sizeof(*icmp) + QUOTE_V4 > limit(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(ethernet->dest, saved.source, 6);
	__builtin_memcpy(ethernet->source, saved.dest, 6);
	ethernet->proto = saved.proto;
	ip->version_ihl = 0x45;
	ip->tos = 0;
	ip->total = be16(more + QUOTE_V4);
	ip->id = 0;
	ip->fragment = be16(0x4000);
	ip->ttl = TUNNEL_TTL;
	ip->proto = PROTO_ICMP;
	ip->check = 0;
	ip->source = flow->dest[0];
	ip->dest = flow->source[0];
	ip->check = sum_of_v4(ip);
	icmp->kind = 3;
	icmp->code = 4;
	icmp->check = 0;
	icmp->id = 0;
	icmp->sequence = be16(mtu);
#pragma unroll
	for (int i = 0; i < (int)(sizeof(*icmp) + QUOTE_V4) / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	icmp->check = ~sum;
	return REASON_TOO_BIG_SENT;
}

/* The same for IPv6: packet too big (RFC 4443, section 3.2). */
INLINE enum reason answer_too_big_v6(struct xdp_md *ctx, const struct flow *flow, __u32 mtu)
{
	const __u32 more = sizeof(struct ipv6) + sizeof(struct icmp), payload = sizeof(struct icmp) + QUOTE_V6;
	struct ethernet *ethernet = place(ctx, 0), saved;
	struct ipv6 *ip;
	struct icmp *icmp;
	__u16 *words;
	__u32 sum = be16(payload) + be16(PROTO_ICMPV6);

	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	saved = *ethernet;
	if (bytes_of(ctx) < AT_IP + QUOTE_V6 ||
	    bpf_xdp_adjust_tail(ctx, (int)(AT_IP + QUOTE_V6) - (int)bytes_of(ctx)))
		return REASON_TOO_BIG_DROPPED;
	if (bpf_xdp_adjust_head(ctx, -(int)more))
		return REASON_NO_ROOM;
	ethernet = place(ctx, 0);
	ip = place(ctx, AT_IP);
	icmp = (void *)(ip + 1);
	words = (void *)icmp;
	if ((void *)words + sizeof(*icmp) + QUOTE_V6 > limit(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(ethernet->dest, saved.source, 6);
	__builtin_memcpy(ethernet->source, saved.dest, 6);
	ethernet->proto = saved.proto;
	ip->flow = be32(0x60000000);
	ip->payload = be16(payload);
	ip->next = PROTO_ICMPV6;
	ip->hops = TUNNEL_TTL;
	__builtin_memcpy(ip->source, flow->dest, 16);
	__builtin_memcpy(ip->dest, flow->source, 16);
	icmp->kind = 2;
	icmp->code = 0;
	icmp->check = 0;
	icmp->id = 0;
	icmp->sequence = be16(mtu);
#pragma unroll
	for (int i = 0; i < (int)(sizeof(*icmp) + QUOTE_V6) / 2; i++)
		sum += words[i];
	/* The addresses of the header of IP. */
	words = (void *)ip->source;
#pragma unroll
	for (int i = 0; i < 16; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	icmp->check = ~sum;
	return REASON_TOO_BIG_SENT;
}

#endif
