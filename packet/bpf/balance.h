/* What a balancer keeps: settings, targets, services, slots, connections, egress addresses. */
#ifndef SALLYPORT_BALANCE_H
#define SALLYPORT_BALANCE_H

#include "tunnel.h"

/* core/packet/src/balance has the same numbers; a test of io/xdp compares them. */
#define BALANCE_TARGETS 1024
#define BALANCE_POOLS 16
#define BALANCE_SLOTS 16384
#define BALANCE_VIRTUALS 2048
#define BALANCE_RANGES 16
#define BALANCE_EGRESS 1024
#define BALANCE_SLICES 32
#define BALANCE_SLICE_SHIFT 11
/* Seconds after which a flow of UDP without packets may go to another edge. */
#define BALANCE_UDP_SECONDS 60
#define SECOND_NS 1000000000ull
/* The first source port of GUE. */
#define GUE_SOURCES 0xc000

enum { BPF_ANY = 0 };
enum { TARGET_NONE = 0, TARGET_SERVING = 1, TARGET_DRAINING = 2, TARGET_DOWN = 3 };

static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;

struct balance_settings {
	__u32 seed;
	/* The sources of outer headers; 0 for none. */
	__u32 source4;
	__u32 source6[4];
	__be16 gue_port;
	__u8 is_gue;
	__u8 has_second;
	__u8 takes_fragments;
	__u8 has_connections;
	__u8 quic_config;
	__u8 zero;
};
_Static_assert(sizeof(struct balance_settings) == 32, "io/xdp writes 32 bytes");

struct balance_target {
	__u32 address[4];
	/* 4 or 6. */
	__u8 family;
	/* TARGET_*. */
	__u8 state;
	/* How often this number was another target's. */
	__u16 generation;
	__u32 zero;
};
_Static_assert(sizeof(struct balance_target) == 24, "io/xdp writes 24 bytes");

/* An address with a protocol. Protocol 0 has what is neither TCP nor UDP. */
struct virtual_key {
	__u32 address[4];
	__u8 protocol;
	__u8 is_v6;
	__u16 zero;
};

/* The ports of a service, and the place of its slots. */
struct virtual_range {
	__u16 first;
	__u16 last;
	__u16 pool;
	__u16 is_quic;
};

struct virtual_ranges {
	__u32 count;
	__u32 zero;
	struct virtual_range ranges[BALANCE_RANGES];
};
_Static_assert(sizeof(struct virtual_ranges) == 8 + 8 * BALANCE_RANGES, "io/xdp writes 136 bytes");

struct connection_key {
	__u32 source[4];
	__u32 dest[4];
	__be16 source_port;
	__be16 dest_port;
	__u8 protocol;
	__u8 is_v6;
	__u16 zero;
};
_Static_assert(sizeof(struct connection_key) == 40, "io/xdp sizes the table");

struct connection {
	__u16 target;
	__u16 generation;
	/* The last packet, in seconds of the monotonic clock. */
	__u32 seen;
};

struct egress_key {
	__u32 address[4];
	__u32 is_v6;
};

struct egress_owners {
	/* The target of another site, or 0. */
	__u16 site;
	__u16 zero;
	/* Targets by slices. */
	__u16 owners[BALANCE_SLICES];
};
_Static_assert(sizeof(struct egress_owners) == 68, "io/xdp writes 68 bytes");

/* The answer of `balance explain`. */
struct balance_verdict {
	__u32 reason;
	__u16 target;
	__u16 second;
	__u32 pool;
	__u32 slot;
	/* Whether the table of connections, or a connection id, decided. */
	__u8 is_remembered;
	__u8 is_by_id;
	__u16 zero;
	__u32 to;
	__u32 mtu;
	__u32 zero2;
};
_Static_assert(sizeof(struct balance_verdict) == 32, "io/xdp reads 32 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_settings);
} balance_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_TARGETS);
	__type(key, __u32);
	__type(value, struct balance_target);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BALANCE_TARGETS);
	__type(key, __u32);
	__type(value, struct counter);
} target_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_VIRTUALS);
	__type(key, struct virtual_key);
	__type(value, struct virtual_ranges);
} virtuals SEC(".maps");

/* The first edge of a slot in the lower half, the second in the upper one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BALANCE_POOLS * BALANCE_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} pool_slots SEC(".maps");

/* io/xdp sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_EGRESS);
	__type(key, struct egress_key);
	__type(value, struct egress_owners);
} egress SEC(".maps");

/* Targets by the servers' numbers in connection ids of QUIC. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_TARGETS);
	__type(key, __u32);
	__type(value, __u32);
} quic_servers SEC(".maps");

/* Balancers of other sites. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BALANCE_TARGETS);
	__type(key, struct egress_key);
	__type(value, __u32);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_verdict);
} balance_verdicts SEC(".maps");

/* The configuration as io/xdp has it, so that the next command finds it. */
#define STATE_BYTES (1 << 20)
struct balance_state {
	__u8 bytes[STATE_BYTES];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct balance_state);
} balance_file SEC(".maps");

#endif
