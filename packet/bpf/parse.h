/* Reads the headers of a frame. Every read is within the frame; what is not right has a reason. */
#ifndef SALLYPORT_PARSE_H
#define SALLYPORT_PARSE_H

#include "layout.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define AF_INET 2
#define AF_INET6 10
#define VID_MASK 0x0fff

enum { PROTO_HOP_BY_HOP = 0, PROTO_TCP = 6, PROTO_UDP = 17 };

struct ethernet {
	__u8 dest[6];
	__u8 source[6];
	__be16 proto;
} __attribute__((packed));

struct vlan {
	__be16 tci;
	__be16 proto;
} __attribute__((packed));

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 proto;
	__u16 check;
	__be32 source;
	__be32 dest;
} __attribute__((packed));

struct ipv6 {
	__be32 flow;
	__be16 payload;
	__u8 next;
	__u8 hops;
	__u32 source[4];
	__u32 dest[4];
} __attribute__((packed));

struct ports {
	__be16 source;
	__be16 dest;
} __attribute__((packed));

/* A packet as the headers say. */
struct packet {
	/* Where the header of IP starts: 14, or 18 behind a tag of a VLAN. */
	__u32 offset;
	__u32 is_v6;
	/* The tag without the VLAN's number: priority and drop eligibility. */
	__u16 priority;
	/* The VLAN, 0 for none. A tag with the number 0 has only a priority. */
	__u16 vid;
};

INLINE void *at(struct xdp_md *ctx, __u32 offset)
{
	return (void *)(long)ctx->data + offset;
}

INLINE void *end(struct xdp_md *ctx)
{
	return (void *)(long)ctx->data_end;
}

/* The bytes of the frame: a number at once, for the kernel takes no half of an address that is kept for later. */
INLINE __u64 bytes_of(struct xdp_md *ctx)
{
	__u64 bytes = end(ctx) - at(ctx, 0);

	asm volatile("" : "+r"(bytes));
	return bytes;
}

INLINE int is_same_mac(const __u8 *a, const __u8 *b)
{
	int different = 0;
#pragma unroll
	for (int i = 0; i < 6; i++)
		different |= a[i] ^ b[i];
	return !different;
}

/* Whether the sum over a header of 20 bytes is right (RFC 1812, section 5.2.2). */
INLINE int is_sum_right(const struct ipv4 *ip)
{
	const __u16 *words = (const __u16 *)ip;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return (sum & 0xffff) == 0xffff;
}

/* The ports behind a header, for the choice among next hops; both stay 0 where there are none. */
INLINE void read_ports(struct xdp_md *ctx, __u32 offset, __u8 proto, struct bpf_fib_lookup *fib)
{
	struct ports *ports = at(ctx, offset);

	if (proto != PROTO_TCP && proto != PROTO_UDP)
		return;
	if ((void *)(ports + 1) > end(ctx))
		return;
	fib->sport = ports->source;
	fib->dport = ports->dest;
}

/* Reads IPv4 into the question to the routes. REASON_FORWARDED means: nothing speaks against it. */
INLINE enum reason read_v4(struct xdp_md *ctx, __u32 offset, struct bpf_fib_lookup *fib)
{
	struct ipv4 *ip = at(ctx, offset);
	__u32 length, dest, source;

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	if (ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5)
		return REASON_MALFORMED;
	length = be16(ip->total);
	if (length < (ip->version_ihl & 15) * 4u)
		return REASON_MALFORMED;
	if (length > (__u32)(end(ctx) - (void *)ip))
		return REASON_TRUNCATED;
	dest = be32(ip->dest);
	/* Multicast, broadcast, link-local (RFC 3927), loopback and "this network" (RFC 6890). */
	if (dest >= 0xe0000000 || dest >> 16 == 0xa9fe || dest >> 24 == 127 || dest >> 24 == 0)
		return REASON_NOT_UNICAST;
	/* The kernel processes options, and checks their sum. */
	if (ip->version_ihl != 0x45)
		return REASON_OPTIONS;
	if (!is_sum_right(ip))
		return REASON_CHECKSUM;
	source = be32(ip->source);
	if (source >= 0xe0000000 || source >> 24 == 127 || source >> 24 == 0)
		return REASON_MARTIAN;
	if (source >> 16 == 0xa9fe)
		return REASON_NOT_UNICAST;
	if (ip->ttl <= 1)
		return REASON_TTL;
	fib->family = AF_INET;
	fib->l4_protocol = ip->proto;
	fib->tot_len = length;
	fib->tos = ip->tos;
	fib->ipv4_src = ip->source;
	fib->ipv4_dst = ip->dest;
	/* Fragments after the first have no ports. The first goes with them. */
	if (!(ip->fragment & be16(0x3fff)))
		read_ports(ctx, offset + sizeof(*ip), ip->proto, fib);
	return REASON_FORWARDED;
}

/* Reads IPv6 into the question to the routes. */
INLINE enum reason read_v6(struct xdp_md *ctx, __u32 offset, struct bpf_fib_lookup *fib)
{
	struct ipv6 *ip = at(ctx, offset);
	__u32 length;

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	if ((ip->flow & be32(0xf0000000)) != be32(0x60000000))
		return REASON_MALFORMED;
	length = be16(ip->payload) + sizeof(*ip);
	if (length > (__u32)(end(ctx) - (void *)ip))
		return REASON_TRUNCATED;
	/* Multicast ff00::/8, link-local fe80::/10, and addresses from :: to ::1. */
	if ((ip->dest[0] & be32(0xff000000)) == be32(0xff000000) || (ip->dest[0] & be32(0xffc00000)) == be32(0xfe800000))
		return REASON_NOT_UNICAST;
	if (!(ip->dest[0] | ip->dest[1] | ip->dest[2] | (ip->dest[3] & be32(0xfffffffe))))
		return REASON_NOT_UNICAST;
	if ((ip->source[0] & be32(0xffc00000)) == be32(0xfe800000))
		return REASON_NOT_UNICAST;
	if ((ip->source[0] & be32(0xff000000)) == be32(0xff000000) ||
	    !(ip->source[0] | ip->source[1] | ip->source[2] | (ip->source[3] & be32(0xfffffffe))))
		return REASON_MARTIAN;
	/* Every router looks at options of hop by hop (RFC 8200, section 4.3). */
	if (ip->next == PROTO_HOP_BY_HOP)
		return REASON_OPTIONS;
	if (ip->hops <= 1)
		return REASON_TTL;
	fib->family = AF_INET6;
	fib->l4_protocol = ip->next;
	fib->tot_len = length > 0xffff ? 0xffff : length;
	fib->flowinfo = ip->flow & be32(0x0fffffff);
	__builtin_memcpy(fib->ipv6_src, ip->source, 16);
	__builtin_memcpy(fib->ipv6_dst, ip->dest, 16);
	read_ports(ctx, offset + sizeof(*ip), ip->next, fib);
	return REASON_FORWARDED;
}

#endif
