/* What one source may send through a balancer: packets, and new connections, each second. */
#ifndef SALLYPORT_LIMIT_H
#define SALLYPORT_LIMIT_H

#include "bucket.h"
#include "flow.h"

enum { BPF_NOEXIST = 1 };

struct limit_settings {
	struct rate packets;
	struct rate connections;
};
_Static_assert(sizeof(struct limit_settings) == 32, "io/xdp writes 32 bytes");

/* An address of IPv4, or the first half of one of IPv6: who has one address of IPv6 has all of these. */
struct limit_source {
	__u32 network[2];
	__u32 is_v6;
};

struct limit_buckets {
	__u64 packets;
	__u64 connections;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_settings);
} limit_set SEC(".maps");

/* io/xdp sets the size. The least recently seen source goes first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct limit_source);
	__type(value, struct limit_buckets);
} limit_sources SEC(".maps");

/* The full time of a bucket that has lost its first token. */
INLINE __u64 limit_first(const struct rate *rate, __u64 now)
{
	return rate->interval ? now + rate->interval : 0;
}

/* Asks the buckets of a source. An error counts for the client that it is about. */
NOINLINE int limit_ask(const struct flow *flow, const struct limit_settings *settings, int is_question)
{
	struct limit_source source = {};
	struct limit_buckets *buckets, first = {};
	__u64 now = bpf_ktime_get_coarse_ns();
	int is_new;

	if (!flow || !settings)
		return REASON_FORWARDED;
	is_new = flow->protocol == PROTO_TCP && !flow->is_error && (flow->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	source.network[0] = flow->source[0];
	source.is_v6 = flow->is_v6;
	if (flow->is_v6)
		source.network[1] = flow->source[1];
	buckets = bpf_map_lookup_elem(&limit_sources, &source);
	if (!buckets) {
		first.packets = limit_first(&settings->packets, now);
		if (is_new)
			first.connections = limit_first(&settings->connections, now);
		if (!is_question)
			bpf_map_update_elem(&limit_sources, &source, &first, BPF_NOEXIST);
		return REASON_FORWARDED;
	}
	if (settings->packets.interval && !bucket_take(&buckets->packets, &settings->packets, now, is_question))
		return REASON_LIMIT;
	if (is_new && settings->connections.interval &&
	    !bucket_take(&buckets->connections, &settings->connections, now, is_question))
		return REASON_LIMIT;
	return REASON_FORWARDED;
}

/* At a balancer, for each packet to a virtual address: REASON_LIMIT for a source that has sent too much. */
INLINE enum reason shield_limit(const struct flow *flow, int is_question)
{
	__u32 key = 0;
	struct limit_settings *settings = bpf_map_lookup_elem(&limit_set, &key);

	if (LIKELY(!settings || !(settings->packets.interval | settings->connections.interval)))
		return REASON_FORWARDED;
	return limit_ask(flow, settings, is_question);
}

#endif
