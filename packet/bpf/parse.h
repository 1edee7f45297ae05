/* Reads the headers of a frame. Every read is within the frame; what is not right has a reason. */
#ifndef SALLYPORT_PARSE_H
#define SALLYPORT_PARSE_H

#include "layout.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define AF_INET 2
#define AF_INET6 10
#define VID_MASK 0x0fff

enum { PROTO_HOP_BY_HOP = 0, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_FRAGMENT = 44 };

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
	/* The time to live, or the hop limit. */
	__u8 hops;
	/* Whether routers have to look at options. */
	__u8 has_options;
	/* Whether an address is one that only the kernel routes: link-local (RFC 3927), or reserved. */
	__u8 is_special;
	/* Whether it is a fragment, of IPv6 also an atomic one. `fragment` says which, where NAT or policy ask: FRAGMENT_*. */
	__u8 is_fragment;
	__u8 fragment;
	/* Whether the frame is for a group of hosts. The kernel takes what is inside, if that is for this machine. */
	__u8 is_for_group;
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

/* Whether the sum over a header of IPv4 with its options is right (RFC 1812, section 5.2.2). All of it is there. */
INLINE int is_sum_right(struct xdp_md *ctx, __u32 offset, const struct ipv4 *ip)
{
	const __u16 *words = (const __u16 *)ip;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += words[i];
	if (UNLIKELY(ip->version_ihl != 0x45)) {
		__u32 count = (ip->version_ihl & 15) * 2u;
#pragma unroll
		for (__u32 i = 10; i < 30; i++) {
			__u16 *word = at(ctx, offset + 2 * i);

			if (i >= count || (void *)(word + 1) > end(ctx))
				break;
			sum += *word;
		}
	}
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

/*
 * Reads IPv4 into the question to the routes. REASON_FORWARDED means: nothing speaks against it. What is for the kernel
 * for its options or its time to live is still asked about its source first, so that nobody gets around that.
 */
INLINE enum reason read_v4(struct xdp_md *ctx, __u32 offset, struct packet *packet, struct bpf_fib_lookup *fib)
{
	struct ipv4 *ip = at(ctx, offset);
	__u32 length, header, dest, source;

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	header = (ip->version_ihl & 15) * 4u;
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip))
		return REASON_MALFORMED;
	if (header > (__u32)(end(ctx) - (void *)ip))
		return REASON_TRUNCATED;
	length = be16(ip->total);
	if (length < header)
		return REASON_MALFORMED;
	if (length > (__u32)(end(ctx) - (void *)ip))
		return REASON_TRUNCATED;
	if (!is_sum_right(ctx, offset, ip))
		return REASON_CHECKSUM;
	dest = be32(ip->dest);
	/* Multicast, broadcast, loopback and "this network" (RFC 6890): the kernel forwards none of them. */
	if (dest >> 28 == 14 || dest == 0xffffffff || dest >> 24 == 127 || dest >> 24 == 0)
		return REASON_NOT_UNICAST;
	source = be32(ip->source);
	if (source >= 0xe0000000 || source >> 24 == 127 || source >> 24 == 0)
		return REASON_MARTIAN;
	/* The kernel forwards these, so their source is asked about first. */
	packet->is_special = source >> 16 == 0xa9fe || dest >> 16 == 0xa9fe || dest >= 0xf0000000;
	packet->hops = ip->ttl;
	packet->has_options = header != sizeof(*ip);
	fib->family = AF_INET;
	fib->l4_protocol = ip->proto;
	fib->tot_len = length;
	fib->tos = ip->tos;
	fib->ipv4_src = ip->source;
	fib->ipv4_dst = ip->dest;
	/* Fragments after the first have no ports. The first goes with them. */
	packet->is_fragment = (ip->fragment & be16(0x3fff)) != 0;
	if (!packet->is_fragment)
		read_ports(ctx, offset + sizeof(*ip), ip->proto, fib);
	return REASON_FORWARDED;
}

/* Whether this is IPv4 in IPv6, ::ffff:0:0/96. No packet has such an address (RFC 6890), and policies take it for IPv4. */
INLINE int is_v4_mapped(const __u32 *address)
{
	return !(address[0] | address[1]) && address[2] == be32(0xffff);
}

/* Reads IPv6 into the question to the routes. */
INLINE enum reason read_v6(struct xdp_md *ctx, __u32 offset, struct packet *packet, struct bpf_fib_lookup *fib)
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
	if (!(ip->dest[0] | ip->dest[1] | ip->dest[2] | (ip->dest[3] & be32(0xfffffffe))) || is_v4_mapped(ip->dest))
		return REASON_NOT_UNICAST;
	if ((ip->source[0] & be32(0xffc00000)) == be32(0xfe800000))
		return REASON_NOT_UNICAST;
	if ((ip->source[0] & be32(0xff000000)) == be32(0xff000000) ||
	    !(ip->source[0] | ip->source[1] | ip->source[2] | (ip->source[3] & be32(0xfffffffe))) ||
	    is_v4_mapped(ip->source))
		return REASON_MARTIAN;
	/* Every router looks at options of hop by hop (RFC 8200, section 4.3). */
	packet->has_options = ip->next == PROTO_HOP_BY_HOP;
	packet->is_fragment = ip->next == PROTO_FRAGMENT;
	packet->hops = ip->hops;
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
