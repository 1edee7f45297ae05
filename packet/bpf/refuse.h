/*
 * Refuses a packet for the inside, and tells its sender why: it is too big, its time to live ends here, or its route is
 * unreachable or prohibited. The kernel cannot: it does not know the sessions of the NAT, and takes the packet for its
 * own.
 */
#ifndef SALLYPORT_REFUSE_H
#define SALLYPORT_REFUSE_H

#include "error_limit.h"
#include "nat.h"

/* What an error has of the packet: the header, and the first 8 bytes behind it (RFC 792). */
#define QUOTED_BYTES 28
#define ERROR_TTL 64

struct icmp_error {
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

/* The type and the code of the error for a reason (RFC 792, RFC 1812), as the kernel has them; 0 for no error. */
INLINE __u32 error_of(enum reason reason)
{
	switch (reason) {
	case REASON_TTL:
		return 11 << 8;
	case REASON_UNREACHABLE:
		return 3 << 8 | 1;
	case REASON_TOO_BIG:
		return 3 << 8 | 4;
	case REASON_PROHIBIT:
		return 3 << 8 | 13;
	default:
		return 0;
	}
}

/*
 * Makes the error of the packet whose header of IP is at the offset, a constant of the compiler. The MTU is that of RFC
 * 1191. Returns whether the frame is now the error.
 */
INLINE int write_error(struct xdp_md *ctx, const __u32 offset, __u32 error_type, __u32 mtu)
{
	const int more = sizeof(struct ipv4) + sizeof(struct icmp_error);
	struct ethernet *ethernet = at(ctx, 0), saved;
	struct vlan *tag = (void *)(ethernet + 1), saved_tag;
	struct ipv4 *ip, *quoted;
	struct icmp_error *error;

	if ((void *)(tag + 1) > end(ctx))
		return 0;
	saved = *ethernet;
	saved_tag = *tag;
	if (bytes_of(ctx) < offset + QUOTED_BYTES ||
	    bpf_xdp_adjust_tail(ctx, (int)(offset + QUOTED_BYTES) - (int)bytes_of(ctx)) || bpf_xdp_adjust_head(ctx, -more))
		return 0;
	ethernet = at(ctx, 0);
	tag = (void *)(ethernet + 1);
	ip = at(ctx, offset);
	error = (void *)(ip + 1);
	quoted = (void *)(error + 1);
	if ((void *)quoted + QUOTED_BYTES > end(ctx))
		return 0;
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
	error->kind = error_type >> 8;
	error->code = error_type & 0xff;
	error->check = 0;
	error->zero = 0;
	error->mtu = be16(mtu);
	error->check = sum_words(error, (sizeof(*error) + QUOTED_BYTES) / 2);
	return 1;
}

/* Whether the kernel may fragment a packet (RFC 791). */
INLINE int may_fragment(struct xdp_md *ctx, __u32 offset)
{
	struct ipv4 *ip = at(ctx, offset & 31);

	return (void *)(ip + 1) <= end(ctx) && !(ip->fragment & be16(0x4000));
}

/* What becomes of a packet for the inside that has an error of ICMP. */
NOINLINE int refuse(struct xdp_md *ctx, const struct packet *packet, const struct translation *t, enum reason reason,
		    __u32 mtu)
{
	int is_too_big = reason == REASON_TOO_BIG, is_done;
	__u32 error_type = error_of(reason);

	/* Nobody answers an error, nor a fragment without its beginning (RFC 1812, section 4.3.2.7). */
	if (t->is_error || t->is_later)
		return is_too_big ? REASON_TOO_BIG_DROPPED : REASON_ERROR_DROPPED;
	if (!error_take())
		return REASON_ICMP_LIMITED;
	if (!is_too_big)
		mtu = 0;
	is_done = packet->offset == sizeof(struct ethernet)
			  ? write_error(ctx, sizeof(struct ethernet), error_type, mtu)
			  : write_error(ctx, sizeof(struct ethernet) + sizeof(struct vlan), error_type, mtu);
	if (is_too_big)
		return is_done ? REASON_TOO_BIG_SENT : REASON_TOO_BIG_DROPPED;
	return is_done ? REASON_ERROR_SENT : REASON_ERROR_DROPPED;
}

#endif
