// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * The generator: each run of a program makes one frame and redirects it to the device, or lets a moment pass.
 *
 * The kernel runs it over pages of its own (BPF_F_TEST_XDP_LIVE_FRAMES). So no card is taken, and the XDP program of a
 * card stays. Pages come back with the edits of whoever had them, so every header is written anew.
 * `sallyport_receive` counts what arrives.
 */
#include "generate.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pace);
} paces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

/* The device to send by. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} outputs SEC(".maps");

/* The frames of a file; io/xdp sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recorded);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wanted);
} wants SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct received);
} receipts SEC(".maps");

/* The addresses and ports of a frame; IPv6 fills all words, IPv4 the last. All in the order of the machine. */
struct flow {
	__u32 source[4];
	__u32 dest[4];
	__u16 source_port;
	__u16 dest_port;
};

/* Whether a frame is due. The first one starts the clock. */
INLINE int is_due(const struct plan *plan, const struct pace *pace, struct state *state, __u64 now)
{
	__u64 elapsed, debt;

	if (state->is_done)
		return 0;
	if (!state->start)
		state->start = now;
	elapsed = now - state->start;
	if ((plan->count && state->sent >= plan->count) || (plan->duration && elapsed >= plan->duration)) {
		state->is_done = 1;
		return 0;
	}
	elapsed <<= PACE_SHIFT;
	if (state->next > elapsed)
		return 0;
	debt = MAX_DEBT_FRAMES * (pace->frame + pace->byte * plan->frame_bytes);
	debt = debt > MAX_DEBT ? debt : MAX_DEBT;
	if (elapsed - state->next > debt)
		state->next = elapsed - debt;
	return 1;
}

INLINE void count_sent(struct state *state, const struct pace *pace, __u32 size, __u64 now)
{
	state->next += pace->frame + pace->byte * (size + WIRE_BYTES);
	state->sent++;
	state->bytes += size;
	state->last = now;
}

/* Gives the frame its size: it comes with the longest of all. */
INLINE int resize(struct xdp_md *ctx, const struct plan *plan, __u32 size)
{
	int delta = (int)size - (int)plan->frame_bytes;

	return !delta || !bpf_xdp_adjust_tail(ctx, delta);
}

/* Takes the next digit of a flow's number. */
INLINE __u32 digit(__u32 *number, __u32 span)
{
	__u32 found;

	if (span <= 1)
		return 0;
	found = *number % span;
	*number /= span;
	return found;
}

INLINE void add(__u32 *words, __u32 offset)
{
	words[3] += offset;
	words[2] += words[3] < offset;
}

/* The next flow: its number is written in digits of destination, source, and the two ports. */
INLINE void next_flow(const struct plan *plan, struct state *state, struct flow *flow)
{
	__u64 next = (__u64)state->flow + plan->step;
	__u32 number = state->flow + plan->first_flow;

	state->flow = next >= plan->flows ? next - plan->flows : next;
	__builtin_memcpy(flow->source, plan->source, 16);
	__builtin_memcpy(flow->dest, plan->dest, 16);
	add(flow->dest, digit(&number, plan->dest_span));
	add(flow->source, digit(&number, plan->source_span));
	flow->source_port = plan->source_port + digit(&number, plan->source_port_span);
	flow->dest_port = plan->dest_port + digit(&number, plan->dest_port_span);
}

INLINE __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(__u16)sum;
}

/* The header of TCP: a SYN. */
struct tcp {
	struct ports ports;
	__u32 sequence;
	__u32 acknowledged;
	__be16 flags;
	__be16 window;
	__u16 check;
	__u16 urgent;
} __attribute__((packed));

struct udp {
	struct ports ports;
	__be16 length;
	__u16 check;
} __attribute__((packed));

/* Writes the header above IP and the stamp. `sum` is that of the addresses. What follows the stamp is zero. */
INLINE int write_above(struct xdp_md *ctx, __u32 offset, int is_tcp, __u32 length, const struct flow *flow, __u64 sum,
		       const struct stamp *stamp)
{
	struct stamp *to = at(ctx, offset + (is_tcp ? sizeof(struct tcp) : sizeof(struct udp)));
	struct ports ports = { be16(flow->source_port), be16(flow->dest_port) };
	__u16 check;

	if ((void *)(to + 1) > end(ctx))
		return 0;
	sum += be16(is_tcp ? PROTO_TCP : PROTO_UDP) + (__u32)be16(length) + ports.source + ports.dest;
	sum += (__u64)stamp->run + stamp->high + stamp->low + (stamp->time >> 32) + (stamp->time & 0xffffffff);
	if (is_tcp) {
		struct tcp *tcp = at(ctx, offset);

		tcp->ports = ports;
		tcp->sequence = be32(stamp->low);
		tcp->acknowledged = 0;
		tcp->flags = be16(0x5002);
		tcp->window = be16(0xfaf0);
		tcp->urgent = 0;
		tcp->check = fold(sum + tcp->sequence + tcp->flags + tcp->window);
	} else {
		struct udp *udp = at(ctx, offset);

		udp->ports = ports;
		udp->length = be16(length);
		check = fold(sum + udp->length);
		udp->check = check ? check : 0xffff;
	}
	*to = *stamp;
	return 1;
}

INLINE int write_v4(struct xdp_md *ctx, __u32 offset, int is_tcp, __u32 size, const struct flow *flow,
		    const struct stamp *stamp)
{
	struct ipv4 *ip = at(ctx, offset);
	__u32 length = size - offset;

	if ((void *)(ip + 1) > end(ctx))
		return 0;
	ip->version_ihl = 0x45;
	ip->tos = 0;
	ip->total = be16(length);
	ip->id = stamp->low;
	ip->fragment = be16(0x4000);
	ip->ttl = GENERATE_TTL;
	ip->proto = is_tcp ? PROTO_TCP : PROTO_UDP;
	ip->source = be32(flow->source[3]);
	ip->dest = be32(flow->dest[3]);
	ip->check = fold((__u64)be16(0x4500) + ip->total + ip->id + ip->fragment + be16(GENERATE_TTL << 8) +
			 be16(is_tcp ? PROTO_TCP : PROTO_UDP) + ip->source + ip->dest);
	return write_above(ctx, offset + sizeof(*ip), is_tcp, length - sizeof(*ip), flow, (__u64)ip->source + ip->dest,
			   stamp);
}

INLINE int write_v6(struct xdp_md *ctx, __u32 offset, int is_tcp, __u32 size, const struct flow *flow,
		    const struct stamp *stamp)
{
	struct ipv6 *ip = at(ctx, offset);
	__u32 length = size - offset - sizeof(*ip);
	__u64 sum = 0;

	if ((void *)(ip + 1) > end(ctx))
		return 0;
	ip->flow = be32(0x60000000);
	ip->payload = be16(length);
	ip->next = is_tcp ? PROTO_TCP : PROTO_UDP;
	ip->hops = GENERATE_TTL;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		ip->source[i] = be32(flow->source[i]);
		ip->dest[i] = be32(flow->dest[i]);
		sum += (__u64)ip->source[i] + ip->dest[i];
	}
	return write_above(ctx, offset + sizeof(*ip), is_tcp, length, flow, sum, stamp);
}

INLINE int write_ethernet(struct xdp_md *ctx, const struct plan *plan, int is_tagged, int is_v6)
{
	struct ethernet *ethernet = at(ctx, 0);
	struct vlan *vlan = at(ctx, sizeof(*ethernet));
	__be16 proto = is_v6 ? be16(ETH_P_IPV6) : be16(ETH_P_IP);

	if ((void *)(vlan + 1) > end(ctx))
		return 0;
	__builtin_memcpy(ethernet->dest, plan->dest_mac, 6);
	__builtin_memcpy(ethernet->source, plan->source_mac, 6);
	ethernet->proto = is_tagged ? be16(ETH_P_8021Q) : proto;
	if (is_tagged) {
		vlan->tci = be16(plan->tci);
		vlan->proto = proto;
	}
	return 1;
}

INLINE int generate(struct xdp_md *ctx, int is_tagged, int is_v6, int is_tcp)
{
	__u32 key = 0, size, offset = sizeof(struct ethernet) + (is_tagged ? sizeof(struct vlan) : 0);
	struct plan *plan = bpf_map_lookup_elem(&plans, &key);
	struct pace *pace = bpf_map_lookup_elem(&paces, &key);
	struct state *state = bpf_map_lookup_elem(&states, &key);
	__u64 now = bpf_ktime_get_ns();
	struct stamp stamp;
	struct flow flow;

	if (!plan || !pace || !state || !is_due(plan, pace, state, now))
		return XDP_DROP;
	size = plan->sizes[state->slot & SIZES_MASK];
	if (!resize(ctx, plan, size) || !write_ethernet(ctx, plan, is_tagged, is_v6))
		return XDP_ABORTED;
	stamp.run = plan->run;
	stamp.high = state->sent >> 32;
	stamp.low = state->sent;
	stamp.time = now;
	next_flow(plan, state, &flow);
	if (!(is_v6 ? write_v6(ctx, offset, is_tcp, size, &flow, &stamp)
		    : write_v4(ctx, offset, is_tcp, size, &flow, &stamp)))
		return XDP_ABORTED;
	state->slot = state->slot + 1u >= plan->sizes_count ? 0 : state->slot + 1;
	count_sent(state, pace, size, now);
	return bpf_redirect_map(&outputs, 0, XDP_DROP);
}

/* A program for each kind of frame, so that the compiler knows every offset. */
#define GENERATOR(name, is_tagged, is_v6, is_tcp)             \
	SEC("xdp")                                            \
	int name(struct xdp_md *ctx)                          \
	{                                                     \
		return generate(ctx, is_tagged, is_v6, is_tcp); \
	}

GENERATOR(send_v4_udp, 0, 0, 0)
GENERATOR(send_v4_tcp, 0, 0, 1)
GENERATOR(send_v6_udp, 0, 1, 0)
GENERATOR(send_v6_tcp, 0, 1, 1)
GENERATOR(send_vlan_v4_udp, 1, 0, 0)
GENERATOR(send_vlan_v4_tcp, 1, 0, 1)
GENERATOR(send_vlan_v6_udp, 1, 1, 0)
GENERATOR(send_vlan_v6_tcp, 1, 1, 1)

/* Sends the frames of a file, one after the other. */
SEC("xdp")
int send_recorded(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct plan *plan = bpf_map_lookup_elem(&plans, &key);
	struct pace *pace = bpf_map_lookup_elem(&paces, &key);
	struct state *state = bpf_map_lookup_elem(&states, &key);
	__u64 now = bpf_ktime_get_ns();
	struct recorded *recorded;
	__u32 length;

	if (!plan || !pace || !state || !is_due(plan, pace, state, now))
		return XDP_DROP;
	key = state->slot;
	recorded = bpf_map_lookup_elem(&records, &key);
	if (!recorded)
		return XDP_ABORTED;
	if (plan->period && now - state->start < state->base + recorded->at)
		return XDP_DROP;
	length = recorded->length;
	if (length < sizeof(struct ethernet) || length > MAX_REPLAY_BYTES || !resize(ctx, plan, length))
		return XDP_ABORTED;
	if (bpf_xdp_store_bytes(ctx, 0, recorded->bytes, length))
		return XDP_ABORTED;
	if (plan->has_macs) {
		struct ethernet *ethernet = at(ctx, 0);

		if ((void *)(ethernet + 1) > end(ctx))
			return XDP_ABORTED;
		__builtin_memcpy(ethernet->dest, plan->dest_mac, 6);
		__builtin_memcpy(ethernet->source, plan->source_mac, 6);
	}
	state->slot++;
	if (state->slot >= plan->sizes_count) {
		state->slot = 0;
		state->base += plan->period;
	}
	count_sent(state, pace, length, now);
	return bpf_redirect_map(&outputs, 0, XDP_DROP);
}

/* The bucket of a latency: its value up to 31 ns, and 32 for each power of two above. */
INLINE __u32 bucket_of(__u64 value)
{
	__u32 power = 0, bucket;
	__u64 rest = value;

	if (value >> (MAX_POWER + 1))
		return MAX_BUCKETS - 1;
	if (value < (1 << PART_BITS))
		return value;
#pragma unroll
	for (int bits = 32; bits; bits >>= 1) {
		if (rest >> bits) {
			rest >>= bits;
			power += bits;
		}
	}
	bucket = (power - PART_BITS + 1) * (1 << PART_BITS) + ((value >> (power - PART_BITS)) & ((1 << PART_BITS) - 1));
	return bucket < MAX_BUCKETS ? bucket : MAX_BUCKETS - 1;
}

/* Reads the stamp of a frame; whether it has one of this run. */
INLINE int read_stamp(struct xdp_md *ctx, __u32 run, struct stamp *stamp)
{
	struct ethernet *ethernet = at(ctx, 0);
	__u32 offset = sizeof(*ethernet);
	struct stamp *found;
	__be16 proto;
	__u8 above;

	if ((void *)(ethernet + 1) > end(ctx))
		return 0;
	proto = ethernet->proto;
	if (proto == be16(ETH_P_8021Q)) {
		struct vlan *vlan = at(ctx, offset);

		if ((void *)(vlan + 1) > end(ctx))
			return 0;
		proto = vlan->proto;
		offset += sizeof(*vlan);
	}
	if (proto == be16(ETH_P_IP)) {
		struct ipv4 *ip = at(ctx, offset);

		if ((void *)(ip + 1) > end(ctx) || ip->version_ihl != 0x45)
			return 0;
		above = ip->proto;
		offset += sizeof(*ip);
	} else if (proto == be16(ETH_P_IPV6)) {
		struct ipv6 *ip = at(ctx, offset);

		if ((void *)(ip + 1) > end(ctx))
			return 0;
		above = ip->next;
		offset += sizeof(*ip);
	} else {
		return 0;
	}
	if (above != PROTO_UDP && above != PROTO_TCP)
		return 0;
	found = at(ctx, offset + (above == PROTO_TCP ? sizeof(struct tcp) : sizeof(struct udp)));
	if ((void *)(found + 1) > end(ctx) || (found->run & ~SENDERS_MASK) != run)
		return 0;
	*stamp = *found;
	return 1;
}

/* Counts the frames of this run, and takes them away. Others go on. */
SEC("xdp")
int sallyport_receive(struct xdp_md *ctx)
{
	__u32 key = 0, bucket;
	struct wanted *wanted = bpf_map_lookup_elem(&wants, &key);
	struct received *received = bpf_map_lookup_elem(&receipts, &key);
	__u64 now = bpf_ktime_get_ns(), number, latency, *next;
	struct stamp stamp;

	if (!wanted || !received)
		return XDP_PASS;
	if (!wanted->is_all && !read_stamp(ctx, wanted->run, &stamp))
		return XDP_PASS;
	if (!received->packets)
		received->first = now;
	received->last = now;
	received->packets++;
	received->bytes += ctx->data_end - ctx->data;
	if (wanted->is_all)
		return XDP_PASS;
	number = ((__u64)stamp.high << 32) | stamp.low;
	next = &received->next[stamp.run & SENDERS_MASK];
	if (number < *next)
		received->reordered++;
	else
		*next = number + 1;
	latency = now > stamp.time ? now - stamp.time : 0;
	received->sum += latency;
	if (latency > received->longest)
		received->longest = latency;
	bucket = bucket_of(latency);
	if (bucket < MAX_BUCKETS)
		received->latency[bucket]++;
	return XDP_DROP;
}

/* The kernel gives its clock and its redirection to every program; the terms are those of the other programs. */
const char terms[] SEC("license") = "GPL";
