/* What the NAT keeps: its settings, ends, mappings, sessions, the log, and the maps of all. */
#ifndef SALLYPORT_NAT_TABLES_H
#define SALLYPORT_NAT_TABLES_H

#include "tcp.h"

#define NAT_MAX_INSIDE 16
#define NAT_MAX_POOL 4096
#define NAT_PORT_TRIES 64
/* Addresses of pools, and those of forwarded ports. */
#define NAT_MAX_EXTERNALS (4096 + 65536)
/* How often sessions are looked through for those whose time is over. */
#define NAT_TICK_NS 1000000000ull
/* How much longer than needed a mapping is said to live, so that it is written seldom. */
#define NAT_SLACK_NS 1000000000ull
#define NAT_LOG_BYTES (1 << 20)
/*
 * How long a session stays after its time. The memory of an entry that is removed may be that of another one at once; a
 * program that has found an entry alive is done with it long before.
 */
#define NAT_GRACE_NS 1000000000ull
/* Instead of the number of sessions: of an entry that goes at the next look, and of one that goes now. */
#define NAT_GOING (-(1 << 30))
#define NAT_GONE (-(1 << 30) - (1 << 29))

enum { PROTO_ICMP = 1 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1 };
enum { NAT_OFF = 0, NAT_XDP = 1, NAT_CONNTRACK = 2 };
enum { NAT_DATAGRAMS = 0, NAT_OPENING = 1, NAT_ANSWERED = 2, NAT_ESTABLISHED = 3, NAT_CLOSING = 4 };
enum {
	NAT_TRANSITORY_NS = 0,
	NAT_ESTABLISHED_NS = 1,
	NAT_UDP_NS = 2,
	NAT_ICMP_NS = 3,
	NAT_HALF_OPEN_NS = 4,
	NAT_CLOSING_NS = 5,
};

static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*const bpf_for_each_map_elem)(void *map, void *function, void *context, __u64 flags) = (void *)164;
struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));
static long (*const bpf_timer_init)(struct bpf_timer *timer, void *map, __u64 flags) = (void *)169;
static long (*const bpf_timer_set_callback)(struct bpf_timer *timer, void *function) = (void *)170;
static long (*const bpf_timer_start)(struct bpf_timer *timer, __u64 nsecs, __u64 flags) = (void *)171;

struct nat_net {
	__be32 address;
	__be32 mask;
};

/* What the file of the router says: io/xdp/src/nat/settings.rs writes it. */
struct nat_settings {
	__u32 engine;
	/* Whether every peer may send to a mapping, and not only those to whom the inside has sent. */
	__u32 is_open;
	__u32 pool;
	__u32 insides;
	__u32 first_port;
	__u32 last_port;
	__u32 seed;
	__u32 max_sessions;
	__u32 max_user_sessions;
	/* The lowest and the highest address outside, as numbers: no other one is looked up. */
	__u32 low;
	__u32 high;
	/* For the loader alone: what nf_conntrack_tcp_be_liberal was before. */
	__u32 was_liberal;
	__u64 lifetimes[6];
	struct nat_net inside[NAT_MAX_INSIDE];
	/* The source of frames that this program has translated, and whose next hop the kernel has to ask for. */
	__u8 mark[6];
	__u8 zero[2];
};
_Static_assert(sizeof(struct nat_settings) == 232, "io/xdp writes 232 bytes");

const volatile struct nat_settings nat SEC(".rodata.nat");

/* An end of a flow. */
struct nat_end {
	__be32 address;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

/* The inside end, and the peer. */
struct nat_key {
	struct nat_end inside;
	__be32 peer;
	__be16 peer_port;
	__u16 zero;
};

struct nat_session {
	struct nat_end external;
	/* The monotonic clock, in nanoseconds. */
	__u64 expires;
	__u64 began;
	/* The end of the mapping's life that this session has written. */
	__u64 mapped_until;
	__u32 state;
	__u32 is_outbound;
	struct connection tcp;
	/* In which number of its user it counts: that of the beginning, also if another side begins it anew. */
	__u32 is_of_stranger;
};
_Static_assert(sizeof(struct nat_session) == 64, "io/xdp reads the first 40 bytes");

struct nat_mapping {
	struct nat_end external;
	__u64 expires;
	__s32 sessions;
	__u32 is_forward;
};

/* The numbers of the whole NAT. */
struct nat_state {
	__s64 sessions;
	/* Records of the log that found no room. */
	__u64 lost;
	/* Whether mappings or users without sessions are to be removed. */
	__u32 has_idle;
	__u32 unused;
};

/* A line of the log of sessions. */
struct nat_record {
	__u64 time;
	__u64 began;
	struct nat_end inside;
	struct nat_end external;
	__be32 peer;
	__be16 peer_port;
	__u8 is_end;
	__u8 is_outbound;
};
_Static_assert(sizeof(struct nat_record) == 40, "io/xdp reads 40 bytes");

struct nat_timer {
	struct bpf_timer timer;
};

/* io/xdp sets the sizes of the tables of sessions. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_key);
	__type(value, struct nat_session);
} nat_sessions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_end);
	__type(value, struct nat_mapping);
} nat_mappings SEC(".maps");

/* The inside end of an outside one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_end);
	__type(value, struct nat_end);
} nat_externals SEC(".maps");

/* Whose sessions count together: those that an inside address has begun, and those that others have begun with it. */
struct nat_user {
	__be32 address;
	__u32 is_of_stranger;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_user);
	__type(value, __s32);
} nat_users SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAT_MAX_POOL);
	__type(key, __u32);
	__type(value, __be32);
} nat_pool SEC(".maps");

/* The addresses of the pool and of forwarded ports. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NAT_MAX_EXTERNALS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be32);
	__type(value, __u32);
} nat_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_state);
} nat_state SEC(".maps");

/* Until when somebody reads the log, by the monotonic clock; 0 if nobody does. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} nat_lease SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_timer);
} nat_timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} nat_log SEC(".maps");

/* Where a processor makes a session and its mapping: too large for the stack. */
struct nat_made {
	struct nat_session session;
	struct nat_mapping mapping;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_made);
} nat_space SEC(".maps");

/* The settings of the loaded program, for the next one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_settings);
} nat_settings SEC(".maps");

/* What the NAT does with a packet. */
struct translation {
	/* The ends of the packet; of an ICMP error, those of the packet inside. */
	struct nat_end source;
	struct nat_end dest;
	/* An error has the new source at the destination of the packet inside, and the other way round. */
	struct nat_end new_source;
	struct nat_end new_dest;
	__u8 does_source;
	__u8 does_dest;
	__u8 is_error;
	__u8 may_begin;
	/* A fragment after the first: only the addresses change. */
	__u8 is_later;
	__u8 unused[3];
	/* Of TCP. */
	struct segment segment;
};

#endif
