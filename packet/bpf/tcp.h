/*
 * What is known of a connection of TCP, so that a stranger who guesses its ends can end nothing.
 *
 * A reset counts if its number is among those that the other side may wait for: from the last that was acknowledged to
 * the last that was sent. Of an idle connection that is one number (RFC 5961, section 3.2). An end counts if both sides
 * have ended. core/packet/src/tcp is the model.
 */
#ifndef SALLYPORT_TCP_H
#define SALLYPORT_TCP_H

#include "parse.h"

enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };
/* How far an acknowledgement may be ahead of what was seen: packets that went another way. */
#define TCP_MAX_AHEAD (1 << 20)

/* A segment: where its data begins and ends, what it acknowledges. SYN and FIN count as one byte each. */
struct segment {
	__u32 seq;
	__u32 end;
	__u32 ack;
	__u32 flags;
};

/* The numbers of the side that began, and of the other one. */
struct connection {
	/* The end of what each side has sent without a gap. */
	__u32 ends[2];
	/* What each side has acknowledged of the other one. */
	__u32 acks[2];
	/* Bits of a side: 0 and 1 say that `ends` is known, 2 and 3 `acks`, 4 and 5 that the side has ended. */
	__u32 known;
};
#define TCP_HAS_END(side) (1u << (side))
#define TCP_HAS_ACK(side) (4u << (side))
#define TCP_HAS_FIN(side) (16u << (side))
#define TCP_BOTH_FINS 48u

struct tcp {
	struct ports ports;
	__be32 seq;
	__be32 ack;
	__u8 words;
	__u8 flags;
} __attribute__((packed));

/* Reads a header that is there, of a segment of so many bytes. */
INLINE void tcp_read(const void *start, __u32 bytes, struct segment *segment)
{
	const struct tcp *tcp = start;

	segment->flags = tcp->flags;
	segment->seq = be32(tcp->seq);
	segment->ack = be32(tcp->ack);
	segment->end = segment->seq + bytes - (tcp->words >> 4) * 4u + !!(tcp->flags & TCP_SYN) + !!(tcp->flags & TCP_FIN);
}

INLINE int tcp_is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Whether a segment is one that the other side may wait for. Of a connection that nobody knows, each is. */
INLINE int tcp_is_awaited(const struct connection *c, __u32 side, const struct segment *segment)
{
	__u32 own = side & 1, other = own ^ 1, low;

	if (!(c->known & TCP_HAS_END(own)))
		return !(c->known & TCP_HAS_END(other)) || (segment->flags & TCP_ACK && segment->ack == c->ends[other]);
	low = c->known & TCP_HAS_ACK(other) ? c->acks[other] : c->ends[own];
	return !tcp_is_before(segment->seq, low) && !tcp_is_before(c->ends[own], segment->seq);
}

/* Counts a segment of a side in. Returns whether it ends the connection: a reset that counts, or the second end. */
GLOBAL int tcp_count_in(struct connection *c, __u32 side, struct segment *segment)
{
	__u32 own = side & 1, other = own ^ 1;
	int is_awaited;

	if (!c || !segment)
		return 0;
	is_awaited = tcp_is_awaited(c, own, segment);
	if (segment->flags & TCP_RST)
		return is_awaited;
	if (is_awaited && (!(c->known & TCP_HAS_END(own)) || tcp_is_before(c->ends[own], segment->end))) {
		c->ends[own] = segment->end;
		c->known |= TCP_HAS_END(own);
	}
	if (is_awaited && segment->flags & TCP_FIN)
		c->known |= TCP_HAS_FIN(own);
	if (segment->flags & TCP_ACK &&
	    (!(c->known & TCP_HAS_ACK(own)) || tcp_is_before(c->acks[own], segment->ack)) &&
	    (!(c->known & TCP_HAS_END(other)) || tcp_is_before(segment->ack, c->ends[other] + TCP_MAX_AHEAD))) {
		/* What a side has received, the other one has sent. */
		if (!(c->known & TCP_HAS_END(other)) || tcp_is_before(c->ends[other], segment->ack))
			c->ends[other] = segment->ack;
		c->acks[own] = segment->ack;
		c->known |= TCP_HAS_ACK(own) | TCP_HAS_END(other);
	}
	return (c->known & TCP_BOTH_FINS) == TCP_BOTH_FINS;
}

#endif
