// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * What a lookup costs by itself: each run of a program looks up 65,536 addresses, one behind the other far apart.
 *
 * The frame that a run gets says what is looked up: see `struct work`. `look_up_none` makes the addresses and looks up
 * nothing, and is subtracted. `look_up_fib` reads the tables that `sallyport packet router run` has filled.
 */
#include "../packet/bpf/fib.h"

#define LOOKUPS 65536
#define BPF_MAP_TYPE_LPM_TRIE 11

static long (*const bpf_loop)(__u32 count, void *callback, void *context, __u64 flags) = (void *)181;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;

struct prefix {
	__u32 length;
	__be32 address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1048576);
	__uint(map_flags, 1);
	__type(key, struct prefix);
	__type(value, __u32);
} trie SEC(".maps");

/* Addresses from `first` on, `span` of them, for packets that come by a device. */
struct work {
	__u32 first;
	__u32 span;
	__u32 ifindex;
	__u32 unused;
};

struct looking {
	void *ctx;
	struct work work;
	__u32 seed;
	/* How many addresses had a route. */
	__u32 found;
};

INLINE __u32 next_address(struct looking *looking)
{
	__u32 x = looking->seed;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	looking->seed = x;
	return looking->work.first + (__u32)((__u64)x * looking->work.span >> 32);
}

static long none(__u32 index, struct looking *looking)
{
	looking->found += next_address(looking) != 0;
	return 0;
}

static long fib(__u32 index, struct looking *looking)
{
	looking->found += cell_of_v4(next_address(looking)) != 0;
	return 0;
}

static long by_trie(__u32 index, struct looking *looking)
{
	struct prefix key = { 32, be32(next_address(looking)) };

	looking->found += bpf_map_lookup_elem(&trie, &key) != 0;
	return 0;
}

static long by_kernel(__u32 index, struct looking *looking)
{
	struct bpf_fib_lookup fib = {};

	fib.family = AF_INET;
	fib.ifindex = looking->work.ifindex;
	fib.ipv4_src = be32(0xc6120001);
	fib.ipv4_dst = be32(next_address(looking));
	looking->found += bpf_fib_lookup(looking->ctx, &fib, sizeof(fib), BPF_FIB_LOOKUP_SKIP_NEIGH) == 0;
	return 0;
}

static long fill(__u32 index, struct looking *looking)
{
	struct prefix key = { 24, be32(looking->work.first + (index << 8)) };
	__u32 value = 1;

	if ((__u64)index << 8 >= looking->work.span)
		return 1;
	looking->found += bpf_map_update_elem(&trie, &key, &value, 0) == 0;
	return 0;
}

/* Runs the function so often; returns how many addresses had a route. */
#define PROGRAM(name, function, count)                                     \
	SEC("xdp")                                                         \
	int name(struct xdp_md *ctx)                                       \
	{                                                                  \
		struct work *work = at(ctx, 0);                            \
		struct looking looking = { ctx, {}, 0x9e3779b9, 0 };       \
                                                                           \
		if ((void *)(work + 1) > end(ctx))                         \
			return 0;                                          \
		looking.work = *work;                                      \
		bpf_loop(count, function, &looking, 0);                    \
		return looking.found;                                      \
	}

PROGRAM(look_up_none, none, LOOKUPS)
PROGRAM(look_up_fib, fib, LOOKUPS)
PROGRAM(look_up_trie, by_trie, LOOKUPS)
PROGRAM(look_up_kernel, by_kernel, LOOKUPS)
/* A prefix of /24 for each 256 addresses. */
PROGRAM(fill_trie, fill, 1 << 20)

const char terms[] SEC("license") = "GPL";
