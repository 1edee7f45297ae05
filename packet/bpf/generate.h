/* What the generator and io/xdp/src/generate share: the plan, the state, and what a receiver has counted. */
#ifndef SALLYPORT_GENERATE_H
#define SALLYPORT_GENERATE_H

#include "parse.h"

static long (*const bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 offset, void *from, __u32 length) = (void *)190;

/* Sizes that follow one another, as those of a mix. */
#define MAX_SIZES 64
#define SIZES_MASK (MAX_SIZES - 1)
/* The most bytes of a frame of a file. */
#define MAX_REPLAY_BYTES 2044
/* Parts of a nanosecond that the pace counts in. */
#define PACE_SHIFT 10
/* How far behind its pace the generator may be: 1 ms, or this many frames. What is more is left out, so that no long
 * burst follows a pause. */
#define MAX_DEBT (1000000ull << PACE_SHIFT)
#define MAX_DEBT_FRAMES 64
/* What the wire adds to a frame: check sequence, preamble and gap. */
#define WIRE_BYTES 24
#define GENERATE_TTL 64

/* The last bits of a run number its senders. */
#define MAX_SENDERS 64
#define SENDERS_MASK (MAX_SENDERS - 1)

/* Buckets of latency: 32 for each power of two of nanoseconds, up to 137 s. */
#define PART_BITS 5
#define MAX_POWER 36
#define MAX_BUCKETS 1056

/* What is sent. */
struct plan {
	/* The most frames; 0 for no end. */
	__u64 count;
	/* The longest time in nanoseconds; 0 for no end. */
	__u64 duration;
	/* The run, which stamps and receivers bear. */
	__u32 run;
	/* The bytes of a frame before this program: the longest of all. */
	__u32 frame_bytes;
	/* How many flows, and how far apart two that follow one another are. */
	__u32 flows;
	__u32 step;
	/* How many of each there are from the first on; 1 for one. */
	__u32 source_span;
	__u32 dest_span;
	__u32 source_port_span;
	__u32 dest_port_span;
	/* The first addresses, each word in the order of the machine; IPv4 is in the last word. */
	__u32 source[4];
	__u32 dest[4];
	__u16 source_port;
	__u16 dest_port;
	/* The tag of the VLAN. */
	__u16 tci;
	/* How many of `sizes`, or of frames of the file, there are. */
	__u16 sizes_count;
	__u8 source_mac[6];
	__u8 dest_mac[6];
	/* Whether frames of a file get these addresses. */
	__u32 has_macs;
	/* Bytes of frames without the check sequence. */
	__u16 sizes[MAX_SIZES];
	/* How long one pass through a file takes, if its frames keep their times; 0 if the pace counts. */
	__u64 period;
	/* The first flow of this sender. */
	__u32 first_flow;
	__u32 unused;
};
_Static_assert(sizeof(struct plan) == 248, "io/xdp writes 248 bytes");

/* The pace, in parts of a nanosecond for a frame and for a byte on the wire. Zero twice is as fast as can be. */
struct pace {
	__u64 frame;
	__u64 byte;
};

struct state {
	/* When the first frame was sent; 0 before. */
	__u64 start;
	/* When the next one is due: parts of a nanosecond since the start. */
	__u64 next;
	__u64 sent;
	/* Bytes of frames without the check sequence. */
	__u64 bytes;
	/* When the last one was sent. */
	__u64 last;
	__u32 flow;
	__u32 slot;
	__u32 is_done;
	__u32 unused;
	/* When this pass through a file began, from the start on. */
	__u64 base;
};
_Static_assert(sizeof(struct state) == 64, "io/xdp reads 64 bytes");

/* A frame of a file. */
struct recorded {
	/* When it is due, from the beginning of the pass on. */
	__u64 at;
	__u32 length;
	__u8 bytes[MAX_REPLAY_BYTES];
};

/* What a frame bears behind its headers. */
struct stamp {
	__u32 run;
	/* The number of the frame, its high and its low part. */
	__u16 high;
	__u32 low;
	__u64 time;
} __attribute__((packed));

/* What a receiver looks for. */
struct wanted {
	__u32 run;
	/* Whether every frame counts, and none is taken away. */
	__u32 is_all;
};

/* What a receiver has counted on a processor. */
struct received {
	__u64 packets;
	__u64 bytes;
	/* Frames behind one with a higher number. */
	__u64 reordered;
	__u64 first;
	__u64 last;
	__u64 longest;
	__u64 sum;
	/* The highest number of each sender, and one. */
	__u64 next[MAX_SENDERS];
	__u64 latency[MAX_BUCKETS];
};
_Static_assert(sizeof(struct received) == 9016, "io/xdp reads 9016 bytes");

#endif
