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
	REASON_COUNT = 32,
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
};
_Static_assert(sizeof(struct verdict) == 44, "io/xdp reads 44 bytes");

#endif
