/* What the program and io/xdp share: the maps' keys and values, and the reasons of counters. */
#ifndef SALLYPORT_LAYOUT_H
#define SALLYPORT_LAYOUT_H

#include "kernel.h"

/* Slots of devices; a device has the slot of the low bits of its index. io/xdp refuses two devices of one slot. */
#define MAX_PORTS 1024
#define PORT_MASK (MAX_PORTS - 1)
/* VLANs of all ports. */
#define MAX_VLANS 4096
/* Rows of counters, one for each port; row 0 is for packets from devices that are no ports. */
#define MAX_ROWS 64
/* Reasons of a row, with room for more. */
#define MAX_REASONS 64

/* What became of a packet, and why. io/xdp/src/reason.rs has the same list. */
enum reason {
	REASON_FORWARDED = 0,
	/* Left to the kernel. */
	REASON_NOT_IP = 1,
	REASON_OTHER_HOST = 2,
	REASON_NOT_UNICAST = 3,
	REASON_OPTIONS = 4,
	REASON_TTL = 5,
	REASON_TOO_BIG = 6,
	REASON_NEIGHBOR = 7,
	REASON_NOT_ROUTED = 8,
	REASON_UNREACHABLE = 9,
	REASON_PROHIBIT = 10,
	REASON_FORWARDING_OFF = 11,
	REASON_OTHER_PORT = 12,
	REASON_UNSUPPORTED = 13,
	REASON_UNKNOWN_VLAN = 14,
	REASON_FRAGMENT = 15,
	REASON_NAT_PROTOCOL = 16,
	REASON_NAT_NO_MAPPING = 17,
	REASON_NAT_KERNEL = 18,
	REASON_POLICY_REJECT = 19,
	/* Dropped. */
	REASON_BLACKHOLE = 20,
	REASON_TRUNCATED = 21,
	REASON_MALFORMED = 22,
	REASON_CHECKSUM = 23,
	REASON_MARTIAN = 24,
	REASON_URPF = 25,
	REASON_NO_ROOM = 26,
	REASON_NAT_FILTERED = 27,
	REASON_NAT_PORTS = 28,
	REASON_NAT_SESSIONS = 29,
	REASON_NAT_NO_SESSION = 30,
	REASON_POLICY = 31,
	/* Sent on by a balancer, or by an edge. */
	REASON_BALANCED = 32,
	REASON_BALANCED_PAIR = 33,
	REASON_SLICE = 34,
	REASON_SITE = 35,
	REASON_TOO_BIG_SENT = 36,
	REASON_SECOND_CHANCE = 37,
	REASON_COOKIE_SENT = 38,
	REASON_ERROR_SENT = 39,
	/* Left to the kernel by both. */
	REASON_DECAPSULATED = 40,
	REASON_NOT_VIRTUAL = 41,
	/* Dropped by both. */
	REASON_NO_SERVICE = 42,
	REASON_NO_EDGE = 43,
	REASON_NO_ROUTE = 44,
	REASON_SLICE_FREE = 45,
	REASON_SLICE_FRAGMENT = 46,
	REASON_FRAGMENT_DROPPED = 47,
	REASON_TOO_BIG_DROPPED = 48,
	REASON_STRANGER = 49,
	REASON_TUNNEL = 50,
	REASON_SITE_LOOP = 51,
	REASON_NO_ADDRESS = 52,
	REASON_LIMIT = 53,
	REASON_COOKIE = 54,
	REASON_ICMP_LIMITED = 55,
	REASON_ERROR_DROPPED = 56,
	REASON_NAT_OTHER_PORT = 57,
	REASON_COUNT = 58,
};

enum urpf { URPF_OFF = 0, URPF_LOOSE = 1, URPF_STRICT = 2 };

/* A device: a port, or a VLAN of a port. */
struct port {
	/* The device; 0 for an empty slot. */
	__u32 ifindex;
	/* The port that carries it: itself, or the port below a VLAN. */
	__u32 parent;
	/* The VLAN, 0 for none. */
	__u16 vid;
	/* Its row of counters: that of its port. */
	__u16 row;
	/* enum urpf. */
	__u8 urpf;
	__u8 unused;
	__u8 mac[6];
};
_Static_assert(sizeof(struct port) == 20, "io/xdp writes 20 bytes");

/* A VLAN on the wire: the port, and the number. */
struct vlan_key {
	__u32 port;
	__u32 vid;
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* What would become of a packet: the answer of `explain`. */
struct verdict {
	/* enum reason. */
	__u32 reason;
	/* The device that it comes in by, and that it leaves by, as the kernel's routes see them; 0 for none. */
	__u32 from;
	__u32 to;
	/* The MTU of the route, where it was too big. */
	__u32 mtu;
	/* The gateway, or the destination on a connected network. */
	__u8 hop[16];
	__u8 smac[6];
	__u8 dmac[6];
	/* What the NAT writes: the new source of a session that stands, or 0, and the new destination. */
	__be32 new_source;
	__be32 new_dest;
	__be16 new_source_port;
	__be16 new_dest_port;
	__u8 has_new_source;
	__u8 has_new_dest;
	__u8 zero[2];
	/* The rule of the policy that decides, from 1 on; the number after the last is the default. 0: nobody was asked. */
	__u32 rule;
};
_Static_assert(sizeof(struct verdict) == 64, "io/xdp reads 64 bytes");

/*
 * The tables of the lookup `fib`: core/packet/src/layout.rs describes them, and a test of io/xdp compares the numbers.
 * Cells are numbers of 32 bits. An element of a map has several of them.
 */
#define FIB4_DEFAULT (1 << 24)
#define FIB4_PAIR_CELLS 2
#define FIB4_BLOCK_CELLS 256
#define FIB6_DEFAULT (1 << 16)
#define FIB6_NODE_CELLS 24
#define FIB6_MAX_STEPS 28
#define NEXT_HOP_CELLS 8
#define ENTRY_NODE 0x80000000u
#define ENTRY_HOP_MASK 0x007fffff
#define GROUP_SLOT_BITS 8
#define GROUP_SLOTS 256

enum hop_kind {
	KIND_NONE = 0,
	KIND_FORWARD = 1,
	KIND_LOCAL = 2,
	KIND_BLACK_HOLE = 3,
	KIND_PROHIBIT = 4,
	KIND_UNREACHABLE = 5,
	KIND_GROUP = 6,
};

struct fib_pair {
	__u32 cells[FIB4_PAIR_CELLS];
};

struct fib_block {
	__u32 cells[FIB4_BLOCK_CELLS];
};

struct fib_node {
	__u32 depth;
	__u32 fallback;
	__u32 prefix[4];
	__u32 unused[2];
	__u32 entries[16];
};
_Static_assert(sizeof(struct fib_node) == 4 * FIB6_NODE_CELLS, "the cells of a node");

struct next_hop {
	/* enum hop_kind. */
	__u32 kind;
	/* The device, or the number of a group. */
	__u32 interface;
	__u32 gateway[4];
	/* 0, 4 or 6. */
	__u32 family;
	/* Of the process that writes. */
	__u32 version;
};
_Static_assert(sizeof(struct next_hop) == 4 * NEXT_HOP_CELLS, "the cells of a next hop");

/*
 * A next hop twice. The low bit of `turn` names the copy that counts. A writer fills the other copy, and then moves the
 * turn: a reader always finds a whole next hop, the old or the new one.
 */
struct next_hop_pair {
	struct next_hop copies[2];
	__u32 turn;
	__u32 unused;
};
_Static_assert(sizeof(struct next_hop_pair) == 8 * NEXT_HOP_CELLS + 8, "io/xdp writes both copies and the turn");

struct group {
	__u32 slots[GROUP_SLOTS];
};

/* An address on a device; words in the order of the network, IPv4 in the first. */
struct neighbor_key {
	__u32 ifindex;
	__u32 family;
	__u32 address[4];
};
_Static_assert(sizeof(struct neighbor_key) == 24, "io/xdp writes 24 bytes");

struct neighbor {
	__u8 mac[6];
	__u8 unused[2];
};
_Static_assert(sizeof(struct neighbor) == 8, "io/xdp writes 8 bytes");

/* What the lookup must know of a device. */
#define LINK_BY_KERNEL 4
struct link {
	__u32 ifindex;
	__u32 mtu;
	/* Bit 0: forwards IPv4. Bit 1: forwards IPv6. Bit 2: the kernel's routes decide, for `ip rule` has more rules. */
	__u32 forwards;
	__u32 unused;
};
_Static_assert(sizeof(struct link) == 16, "io/xdp writes 16 bytes");

#endif
