/*
 * How many ICMP errors a program answers with. Each processor has a bucket of its own, and all receivers share it: a flood
 * of packets that are too big gets no flood of answers.
 */
#ifndef SALLYPORT_ERROR_LIMIT_H
#define SALLYPORT_ERROR_LIMIT_H

#include "bucket.h"

/* The time between two errors of a processor: 1,000 each second. */
#define ERROR_INTERVAL_NS 1000000ull
/* Errors at once, after a silence. */
#define ERROR_BURST 50

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} error_bucket SEC(".maps");

/* Takes the token of an error, if there is one. */
INLINE int error_take(void)
{
	const struct rate rate = {
		.interval = ERROR_INTERVAL_NS,
		.ahead = (ERROR_BURST - 1) * ERROR_INTERVAL_NS,
	};
	__u32 zero = 0;
	__u64 *bucket = bpf_map_lookup_elem(&error_bucket, &zero);

	return bucket && bucket_take(bucket, &rate, bpf_ktime_get_coarse_ns(), 0);
}

#endif
