/*
 * Fragments of packets whose first fragment went on: only that one has ports, and the others follow it.
 *
 * core/packet/src/parse/fragments.rs is the model. A fragment that comes before its first one is not known here.
 */
#ifndef SALLYPORT_FRAGMENT_H
#define SALLYPORT_FRAGMENT_H

#include "nat_tables.h"

/* The most fragmented packets at a time: a new one takes the place of the oldest. */
#define MAX_FRAGMENTED 16384
/* How long after its first fragment the others of a packet may come. */
#define FRAGMENT_NS 5000000000ull
#define TCP_HEADER_BYTES 20

enum { FRAGMENT_NONE = 0, FRAGMENT_FIRST = 1, FRAGMENT_LATER = 2 };

struct fragment_header {
	__u8 next;
	__u8 zero;
	__be16 place;
	__be32 id;
} __attribute__((packed));

/* A fragmented packet, as it came in. */
struct fragment_key {
	__u32 source[4];
	__u32 dest[4];
	__be32 id;
	__u32 protocol;
};
_Static_assert(sizeof(struct fragment_key) == 40, "io/xdp pins the map, and knows its sizes");

/* The addresses that the NAT has written into the first fragment. */
struct fragment_way {
	__u64 expires;
	__be32 source;
	__be32 dest;
	__u8 does_source;
	__u8 does_dest;
	__u8 zero[6];
};
_Static_assert(sizeof(struct fragment_way) == 24, "io/xdp pins the map, and knows its sizes");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTED);
	__type(key, struct fragment_key);
	__type(value, struct fragment_way);
} fragments SEC(".maps");

/* The packet that a processor is at: its headers change before the packet is remembered. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fragment_key);
} fragment_space SEC(".maps");

INLINE int fragment_read_v4(struct xdp_md *ctx, __u32 offset, struct fragment_key *key, __u32 *place)
{
	struct ipv4 *ip = at(ctx, offset & 31);

	if ((void *)(ip + 1) > end(ctx))
		return 0;
	key->source[0] = ip->source;
	key->dest[0] = ip->dest;
	key->id = ip->id;
	key->protocol = ip->proto;
	*place = (be16(ip->fragment) & 0x1fff) * 8u;
	return 1;
}

INLINE int fragment_read_v6(struct xdp_md *ctx, __u32 offset, struct fragment_key *key, __u32 *place)
{
	struct ipv6 *ip = at(ctx, offset & 31);
	struct fragment_header *header = (void *)(ip + 1);

	if ((void *)(header + 1) > end(ctx) || be16(ip->payload) < sizeof(*header))
		return 0;
	__builtin_memcpy(key->source, ip->source, 16);
	__builtin_memcpy(key->dest, ip->dest, 16);
	key->id = header->id;
	key->protocol = header->next;
	*place = be16(header->place) & 0xfff8u;
	/* An atomic fragment is a whole packet (RFC 6946). */
	return *place || header->place & be16(1);
}

/* Says which fragment a packet is, and keeps the key of its packet. */
NOINLINE int fragment_read(struct xdp_md *ctx, __u32 offset, __u32 is_v6)
{
	__u32 zero = 0, place = 0;
	struct fragment_key *key = bpf_map_lookup_elem(&fragment_space, &zero);

	if (!key)
		return FRAGMENT_NONE;
	__builtin_memset(key, 0, sizeof(*key));
	if (!(is_v6 ? fragment_read_v6(ctx, offset, key, &place) : fragment_read_v4(ctx, offset, key, &place)))
		return FRAGMENT_NONE;
	if (!place)
		return FRAGMENT_FIRST;
	/* One that would replace the flags that were judged belongs to no packet (RFC 3128). */
	if (key->protocol == PROTO_TCP && place < TCP_HEADER_BYTES)
		key->protocol = ~0u;
	return FRAGMENT_LATER;
}

/* What became of the first fragment of this processor's packet, if it went on. */
INLINE struct fragment_way *fragment_recall(void)
{
	__u32 zero = 0;
	struct fragment_key *key = bpf_map_lookup_elem(&fragment_space, &zero);
	struct fragment_way *way = key ? bpf_map_lookup_elem(&fragments, key) : (void *)0;

	return way && way->expires > bpf_ktime_get_coarse_ns() ? way : (void *)0;
}

/* Keeps what became of a first fragment. */
NOINLINE int fragment_remember(const struct translation *t)
{
	__u32 zero = 0;
	struct fragment_key *key = bpf_map_lookup_elem(&fragment_space, &zero);
	struct fragment_way way = {};

	if (!key || !t)
		return 0;
	way.expires = bpf_ktime_get_coarse_ns() + FRAGMENT_NS;
	way.source = t->new_source.address;
	way.dest = t->new_dest.address;
	way.does_source = t->does_source;
	way.does_dest = t->does_dest;
	bpf_map_update_elem(&fragments, key, &way, BPF_ANY);
	return 0;
}

#endif
