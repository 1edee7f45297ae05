/*
 * Tells the sender of a packet for the inside that the packet is too big. The kernel cannot: it does not know the
 * sessions of the NAT, and its error would name the address of the inside.
 */
#ifndef SALLYPORT_TOO_BIG_H
#define SALLYPORT_TOO_BIG_H

#include "error_limit.h"
#include "nat.h"

/* What an error has of the packet: the header, and the first 8 bytes behind it (RFC 792). */
#define QUOTED_BYTES 28
#define ERROR_TTL 64

struct too_big {
	__u8 kind;
	__u8 code;
	__u16 check;
	__be16 zero;
	__be16 mtu;
} __attribute__((packed));

INLINE __u16 sum_words(const void *start, int count)
{
	const __u16 *words = start;
	__u32 sum = 0;
#pragma unroll
	for (int i = 0; i < count; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return ~sum;
}

/* Makes the error (RFC 1191) of the packet whose header of IP is at the offset, a constant of the compiler. */
INLINE enum reason answer_too_big(struct xdp_md *ctx, const __u32 offset, __u32 mtu)
{
	const int more = sizeof(struct ipv4) + sizeof(struct too_big);
	struct ethernet *ethernet = at(ctx, 0), saved;
	struct vlan *tag = (void *)(ethernet + 1), saved_tag;
	struct ipv4 *ip, *quoted;
	struct too_big *error;

	if ((void *)(tag + 1) > end(ctx))
		return REASON_TRUNCATED;
	saved = *ethernet;
	saved_tag = *tag;
	if (bytes_of(ctx) < offset + QUOTED_BYTES ||
	    bpf_xdp_adjust_tail(ctx, (int)(offset + QUOTED_BYTES) - (int)bytes_of(ctx)) || bpf_xdp_adjust_head(ctx, -more))
		return REASON_TOO_BIG_DROPPED;
	ethernet = at(ctx, 0);
	tag = (void *)(ethernet + 1);
	ip = at(ctx, offset);
	error = (void *)(ip + 1);
	quoted = (void *)(error + 1);
	if ((void *)quoted + QUOTED_BYTES > end(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(ethernet->dest, saved.source, 6);
	__builtin_memcpy(ethernet->source, saved.dest, 6);
	ethernet->proto = saved.proto;
	if (offset != sizeof(*ethernet))
		*tag = saved_tag;
	ip->version_ihl = 0x45;
	ip->tos = 0;
	ip->total = be16(more + QUOTED_BYTES);
	ip->id = 0;
	ip->fragment = be16(0x4000);
	ip->ttl = ERROR_TTL;
	ip->proto = PROTO_ICMP;
	ip->check = 0;
	ip->source = quoted->dest;
	ip->dest = quoted->source;
	ip->check = sum_words(ip, sizeof(*ip) / 2);
	error->kind = 3;
	error->code = 4;
	error->check = 0;
	error->zero = 0;
	error->mtu = be16(mtu);
	error->check = sum_words(error, (sizeof(*error) + QUOTED_BYTES) / 2);
	return REASON_TOO_BIG_SENT;
}

/* Whether the kernel may fragment a packet (RFC 791). */
INLINE int may_fragment(struct xdp_md *ctx, __u32 offset)
{
	struct ipv4 *ip = at(ctx, offset & 31);

	return (void *)(ip + 1) <= end(ctx) && !(ip->fragment & be16(0x4000));
}

/* What becomes of a packet for the inside that is too big, and that nobody may fragment. */
NOINLINE int refuse_too_big(struct xdp_md *ctx, const struct packet *packet, const struct translation *t,
			    __u32 mtu)
{
	/* Nobody answers an error, nor a fragment without its beginning (RFC 1812, section 4.3.2.7). */
	if (t->is_error || t->is_later)
		return REASON_TOO_BIG_DROPPED;
	if (!error_take())
		return REASON_ICMP_LIMITED;
	return packet->offset == sizeof(struct ethernet)
		       ? answer_too_big(ctx, sizeof(struct ethernet), mtu)
		       : answer_too_big(ctx, sizeof(struct ethernet) + sizeof(struct vlan), mtu);
}

#endif
