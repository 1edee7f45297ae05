/*
 * Copies what becomes of packets to `packet dump`, while it looks.
 *
 * A program calls `dump_begin` before it changes a frame, and `dump_end` when the reason is known. Nobody looks: one
 * load and one branch. `until` is a deadline, so a killed `packet dump` costs nothing either, after a moment.
 */
#ifndef SALLYPORT_DUMP_H
#define SALLYPORT_DUMP_H

#include "parse.h"

/* The first bytes of the frame as it came: all that a program rewrites lies within. */
#define DUMP_HEAD 128
/* The most bytes of the frame as it left. */
#define DUMP_SNAP 4096

/* What `packet dump` wants; io/xdp/src/dump.rs writes it. */
struct dump_control {
	/* Nobody looks after this time of the monotonic clock, in nanoseconds; 0 if nobody looks. */
	__u64 until;
	/* A bit for each reason that is wanted. */
	__u64 reasons;
	/* Bytes of the frame, at most DUMP_SNAP. */
	__u32 snaplen;
	/* One of so many packets; 0 and 1 for all. */
	__u32 sample;
	/* The device on either side; 0 for any. */
	__u32 device;
	__u32 unused;
};
_Static_assert(sizeof(struct dump_control) == 32, "io/xdp writes 32 bytes");
_Static_assert(MAX_REASONS <= 64, "a bit for each reason");

/* What became of one packet. */
struct dump_record {
	/* The monotonic clock, in nanoseconds. */
	__u64 time;
	/* Ports, or VLANs of ports; `to` is 0 if there is no way out. */
	__u32 from;
	__u32 to;
	/* Bytes of the frame as it came, and as it left. */
	__u32 came;
	__u32 left;
	/* enum reason. */
	__u16 reason;
	/* Bytes of `before`, and of `after`. */
	__u16 head;
	__u32 captured;
	__u8 before[DUMP_HEAD];
	__u8 after[DUMP_SNAP];
};
_Static_assert(__builtin_offsetof(struct dump_record, before) == 32, "io/xdp reads 32 bytes before the frames");

/* The work space of a processor. */
struct dump {
	__u64 turn;
	struct dump_record record;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dump_control);
} dump_control SEC(".maps");

/* Records that found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dump_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dump);
} dump_space SEC(".maps");

struct dump_ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
};
/* The ring of the `packet dump` that looks: its own, so that no memory is held when nobody looks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct dump_ring);
} dump_rings SEC(".maps");

/* Keeps the beginning of the frame as it came; returns 0 if this packet is not wanted. */
static __attribute__((noinline)) struct dump *dump_take(struct xdp_md *ctx, struct dump_control *control)
{
	__u32 key = 0, head = bytes_of(ctx);
	struct dump *dump = bpf_map_lookup_elem(&dump_space, &key);
	__u64 now = bpf_ktime_get_ns();

	if (!control || !dump)
		return (void *)0;
	if (now > control->until) {
		control->until = 0;
		return (void *)0;
	}
	if (control->sample > 1 && ++dump->turn % control->sample)
		return (void *)0;
	dump->record.time = now;
	dump->record.came = head;
	if (head > DUMP_HEAD)
		head = DUMP_HEAD;
	if (head < 1 || bpf_xdp_load_bytes(ctx, 0, dump->record.before, head))
		return (void *)0;
	dump->record.head = head;
	return dump;
}

/* Hands the record over. The reader has what a slow one has missed as a number. */
static __attribute__((noinline)) int dump_write(struct xdp_md *ctx, struct dump *dump, __u32 reason,
						const struct port *from, const struct port *to)
{
	__u32 key = 0, length = bytes_of(ctx), came_by = ctx->ingress_ifindex, wanted;
	struct dump_control *control = bpf_map_lookup_elem(&dump_control, &key);
	void *ring = bpf_map_lookup_elem(&dump_rings, &key);
	__u64 *lost = bpf_map_lookup_elem(&dump_lost, &key);
	struct dump_record *record;

	if (!dump || !control || !ring || !lost || !(control->reasons >> (reason & 63) & 1))
		return 0;
	/* Read here: a choice between two addresses is not for the kernel. */
	asm volatile("" : "+r"(came_by));
	wanted = control->device;
	record = &dump->record;
	record->from = from ? from->ifindex : came_by;
	record->to = to ? to->ifindex : 0;
	if (wanted && wanted != came_by && wanted != record->from && wanted != record->to &&
	    !(to && wanted == to->parent))
		return 0;
	record->reason = reason;
	record->left = length;
	if (length > control->snaplen)
		length = control->snaplen;
	if (length > DUMP_SNAP)
		length = DUMP_SNAP;
	if (length < 1 || bpf_xdp_load_bytes(ctx, 0, record->after, length))
		return 0;
	record->captured = length;
	if (bpf_ringbuf_output(ring, record, __builtin_offsetof(struct dump_record, after) + length, 0))
		++*lost;
	return 0;
}

/* Before anything is changed: the beginning of a record, or 0 if nobody looks. */
INLINE struct dump *dump_begin(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct dump_control *control = bpf_map_lookup_elem(&dump_control, &key);

	if (LIKELY(!control || !control->until))
		return (void *)0;
	return dump_take(ctx, control);
}

/* At the end: what became of it. */
INLINE void dump_end(struct xdp_md *ctx, struct dump *dump, enum reason reason, const struct port *from,
		     const struct port *to)
{
	if (UNLIKELY(dump))
		dump_write(ctx, dump, reason, from, to);
}

#endif
