/*
 * Buckets of tokens, each kept as one number: the time at which the bucket is full again.
 *
 * A packet moves that time by the price of a packet. It is over the limit if the time is too far ahead of the clock. One
 * number changes at once on all processors, and a packet over the limit writes nothing. core/packet/src/balance/shield.rs
 * is the model.
 */
#ifndef SALLYPORT_BUCKET_H
#define SALLYPORT_BUCKET_H

#include "kernel.h"

/* Tries to write before a packet passes for free: other processors take tokens at the same moment. */
#define BUCKET_TRIES 4

/* A limit. */
struct rate {
	/* The nanoseconds between two packets; 0 for no limit. */
	__u64 interval;
	/* How far ahead the time may be. */
	__u64 ahead;
};
_Static_assert(sizeof(struct rate) == 16, "io/xdp writes 16 bytes");

/* Takes a token, if there is one. A question only looks. */
INLINE int bucket_take(__u64 *bucket, const struct rate *rate, __u64 now, int is_question)
{
	for (int i = 0; i < BUCKET_TRIES; i++) {
		__u64 full = *(volatile __u64 *)bucket, start = full > now ? full : now;

		if (start - now > rate->ahead)
			return 0;
		if (is_question || __sync_val_compare_and_swap(bucket, full, start + rate->interval) == full)
			return 1;
	}
	return 1;
}

#endif
