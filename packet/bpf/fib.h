/*
 * The lookup `fib`: the routes of the kernel in tables of our own, which `packet router run` fills.
 *
 * IPv4 by DIR-24-8, IPv6 by a trie that leaves out nodes with one way. Prefixes share next hops. What these tables
 * do not know is left to the kernel, which has the route too.
 */
#ifndef SALLYPORT_FIB_H
#define SALLYPORT_FIB_H

#include "parse.h"

/* How often a next hop is read that is replaced meanwhile. */
#define HOP_READS 4

/* Whether the program looks up here. Set before the program is loaded, so the kernel leaves out the other branch. */
const volatile __u32 has_fib SEC(".rodata.fib") = 0;

/* io/xdp sets how many elements each map has. With the lookup `kernel`, each has one. */
#define FIB_ARRAY(name, element)                    \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY);   \
		__uint(max_entries, 1);             \
		__type(key, __u32);                 \
		__type(value, element);             \
	} name SEC(".maps")

FIB_ARRAY(fib4_first, struct fib_pair);
FIB_ARRAY(fib4_second, struct fib_block);
FIB_ARRAY(fib6_first, struct fib_pair);
FIB_ARRAY(fib6_nodes, struct fib_node);
FIB_ARRAY(next_hops, struct next_hop_pair);
FIB_ARRAY(group_slots, struct group);
FIB_ARRAY(links, struct link);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct neighbor_key);
	__type(value, struct neighbor);
} neighbors SEC(".maps");

/* The cell of an IPv4 address in the order of the host; 0 without a route. */
INLINE __u32 cell_of_v4(__u32 address)
{
	__u32 key = address >> 9, cell = 0;
	struct fib_pair *pair = bpf_map_lookup_elem(&fib4_first, &key);

	if (pair)
		cell = pair->cells[address >> 8 & 1];
	if (cell & ENTRY_NODE) {
		struct fib_block *block;

		key = cell & ~ENTRY_NODE;
		block = bpf_map_lookup_elem(&fib4_second, &key);
		cell = block ? block->cells[address & 0xff] : 0;
	}
	if (!cell) {
		key = FIB4_DEFAULT / FIB4_PAIR_CELLS;
		pair = bpf_map_lookup_elem(&fib4_first, &key);
		cell = pair ? pair->cells[0] : 0;
	}
	return cell;
}

/* The bits of a word of 64 that are among the first `depth`. */
INLINE __u64 mask_of(__u32 depth)
{
	return depth >= 64 ? ~0ull : ~0ull << (64 - depth & 63);
}

/* The cell of an IPv6 address, in two words of the host's order; 0 without a route. */
GLOBAL __u32 cell_of_v6(__u64 upper, __u64 lower)
{
	__u32 key = upper >> 49, cell = 0;
	struct fib_pair *pair = bpf_map_lookup_elem(&fib6_first, &key);

	if (pair)
		cell = pair->cells[upper >> 48 & 1];
	for (int step = 0; step < FIB6_MAX_STEPS && cell & ENTRY_NODE; step++) {
		struct fib_node *node;
		__u64 differs;
		__u32 depth;

		key = cell & ~ENTRY_NODE;
		cell = 0;
		node = bpf_map_lookup_elem(&fib6_nodes, &key);
		if (!node)
			break;
		depth = node->depth;
		/* A node has a depth of 16 bits or more. */
		differs = (upper ^ ((__u64)node->prefix[0] << 32 | node->prefix[1])) & mask_of(depth);
		if (depth > 64)
			differs |= (lower ^ ((__u64)node->prefix[2] << 32 | node->prefix[3])) & mask_of(depth - 64);
		if (differs) {
			cell = node->fallback;
			break;
		}
		cell = node->entries[(depth < 64 ? upper : lower) >> (60 - (depth & 63) & 63) & 15];
	}
	if (!cell) {
		key = FIB6_DEFAULT / FIB4_PAIR_CELLS;
		pair = bpf_map_lookup_elem(&fib6_first, &key);
		cell = pair ? pair->cells[0] : 0;
	}
	return cell & ENTRY_NODE ? 0 : cell;
}

INLINE __u32 cell_of(const __u32 *address, __u8 family)
{
	if (family == AF_INET)
		return cell_of_v4(be32(address[0]));
	return cell_of_v6((__u64)be32(address[0]) << 32 | be32(address[1]),
			  (__u64)be32(address[2]) << 32 | be32(address[3]));
}

/* The turn of a next hop, read at this moment. */
INLINE __u32 turn_of(const struct next_hop_pair *pair)
{
	__u32 turn = *(volatile const __u32 *)&pair->turn;

	asm volatile("" ::: "memory");
	return turn;
}

/* Copies a next hop. A copy is read again only if the next hop was replaced twice meanwhile; returns 0 without one. */
INLINE int read_hop(__u32 number, struct next_hop *copy)
{
	struct next_hop_pair *pair = bpf_map_lookup_elem(&next_hops, &number);

	if (!pair)
		return 0;
	for (int i = 0; i < HOP_READS; i++) {
		__u32 turn = turn_of(pair);

		*copy = pair->copies[turn & 1];
		asm volatile("" ::: "memory");
		if (turn == turn_of(pair))
			return 1;
	}
	return 0;
}

INLINE __u32 mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b1;
	return hash ^ hash >> 15;
}

/* The hash of a flow: `flow_hash` in core/packet/src/parse/flow.rs. */
INLINE __u32 hash_of(const struct bpf_fib_lookup *fib)
{
	__u32 hash = mix(0, be32(fib->ipv6_src[0]));

	if (fib->family == AF_INET6) {
		hash = mix(hash, be32(fib->ipv6_src[1]));
		hash = mix(hash, be32(fib->ipv6_src[2]));
		hash = mix(hash, be32(fib->ipv6_src[3]));
	}
	hash = mix(hash, be32(fib->ipv6_dst[0]));
	if (fib->family == AF_INET6) {
		hash = mix(hash, be32(fib->ipv6_dst[1]));
		hash = mix(hash, be32(fib->ipv6_dst[2]));
		hash = mix(hash, be32(fib->ipv6_dst[3]));
	}
	hash = mix(hash, (__u32)be16(fib->sport) << 16 | be16(fib->dport));
	hash = mix(hash, fib->l4_protocol);
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* The device of this index, as the lookup knows it. */
INLINE struct link *link_of(__u32 ifindex)
{
	__u32 slot = ifindex & PORT_MASK;
	struct link *link = bpf_map_lookup_elem(&links, &slot);

	return link && link->ifindex == ifindex ? link : (void *)0;
}

/* Whether the source has a way back: by the device that the packet came from, or by any (RFC 3704). */
GLOBAL int is_fib_source_right(struct bpf_fib_lookup *fib, __u32 urpf)
{
	struct next_hop hop = {};
	struct group *group;
	__u32 cell, ifindex, number;

	if (!fib)
		return 0;
	cell = cell_of(fib->ipv6_src, fib->family);
	ifindex = fib->ifindex;
	if (!cell || !read_hop(cell & ENTRY_HOP_MASK, &hop))
		return 0;
	if (hop.kind == KIND_FORWARD)
		return urpf == URPF_LOOSE || hop.interface == ifindex;
	if (hop.kind != KIND_GROUP)
		return 0;
	if (urpf == URPF_LOOSE)
		return 1;
	/* Of several next hops, each is a way back. */
	number = hop.interface;
	group = bpf_map_lookup_elem(&group_slots, &number);
	if (!group)
		return 0;
	for (int slot = 0; slot < GROUP_SLOTS; slot++) {
		struct next_hop_pair *pair;
		struct next_hop *member;

		number = group->slots[slot];
		pair = bpf_map_lookup_elem(&next_hops, &number);
		if (!pair)
			continue;
		member = &pair->copies[turn_of(pair) & 1];
		if (member->kind == KIND_FORWARD && member->interface == ifindex)
			return 1;
	}
	return 0;
}

INLINE enum reason reason_of_hop(__u32 kind)
{
	switch (kind) {
	case KIND_FORWARD:
		return REASON_FORWARDED;
	case KIND_BLACK_HOLE:
		return REASON_BLACKHOLE;
	case KIND_PROHIBIT:
		return REASON_PROHIBIT;
	case KIND_UNREACHABLE:
		return REASON_UNREACHABLE;
	default:
		return REASON_NOT_ROUTED;
	}
}

/* Answers the question as bpf_fib_lookup does, but for the address of our own device. */
GLOBAL int look_up(struct bpf_fib_lookup *fib)
{
	struct neighbor_key key = {};
	struct next_hop hop = {};
	struct neighbor *neighbor;
	struct link *link;
	__u32 cell;

	if (!fib)
		return REASON_NOT_ROUTED;
	link = link_of(fib->ifindex);
	if (!link || !(link->forwards & (fib->family == AF_INET ? 1 : 2)))
		return REASON_FORWARDING_OFF;
	cell = cell_of(fib->ipv6_dst, fib->family);
	if (!cell || !read_hop(cell & ENTRY_HOP_MASK, &hop))
		return REASON_NOT_ROUTED;
	if (hop.kind == KIND_GROUP) {
		__u32 number = hop.interface;
		struct group *group = bpf_map_lookup_elem(&group_slots, &number);

		if (!group || !read_hop(group->slots[hash_of(fib) >> (32 - GROUP_SLOT_BITS)], &hop))
			return REASON_NOT_ROUTED;
	}
	if (hop.kind != KIND_FORWARD)
		return reason_of_hop(hop.kind);
	link = link_of(hop.interface);
	if (!link)
		return REASON_OTHER_PORT;
	fib->ifindex = hop.interface;
	key.ifindex = hop.interface;
	key.family = hop.family ? hop.family : fib->family == AF_INET ? 4 : 6;
	if (hop.family) {
		key.address[0] = be32(hop.gateway[0]);
		key.address[1] = be32(hop.gateway[1]);
		key.address[2] = be32(hop.gateway[2]);
		key.address[3] = be32(hop.gateway[3]);
	} else {
		key.address[0] = fib->ipv6_dst[0];
		if (fib->family == AF_INET6) {
			key.address[1] = fib->ipv6_dst[1];
			key.address[2] = fib->ipv6_dst[2];
			key.address[3] = fib->ipv6_dst[3];
		}
	}
	fib->family = key.family == 4 ? AF_INET : AF_INET6;
	__builtin_memcpy(fib->ipv6_dst, key.address, 16);
	if (fib->tot_len > link->mtu) {
		fib->mtu_result = link->mtu;
		return REASON_TOO_BIG;
	}
	neighbor = bpf_map_lookup_elem(&neighbors, &key);
	if (!neighbor)
		return REASON_NEIGHBOR;
	__builtin_memcpy(fib->dmac, neighbor->mac, 6);
	return REASON_FORWARDED;
}

#endif
