// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * The balancer: sends packets to virtual addresses to edges, and those to egress addresses to the machines that dialled.
 *
 * `decide` says where a packet goes, and `send` encapsulates it. `sallyport_balance` runs on every port;
 * `sallyport_balance_explain` only decides. What is for neither kind of address is left to the kernel.
 */
#include "balance.h"
#include "dump.h"
#include "error_limit.h"
#include "limit.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* The devices to send by, in the slots of `ports`. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROWS * MAX_REASONS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

/* All that is known of a packet. */
struct choice {
	struct flow flow;
	struct route_out out;
	struct port *from;
	struct port *to;
	struct balance_settings *settings;
	__u16 target;
	__u16 second;
	__u32 pool;
	__u32 slot;
	__u32 hash;
	__u32 mtu;
	__u8 is_remembered;
	__u8 is_by_id;
	/* Another site has sent it here. */
	__u8 is_of_site;
	/* Nobody sends the packet: no connection is remembered. */
	__u8 is_question;
};

INLINE struct port *port_of(__u32 ifindex)
{
	__u32 slot = ifindex & PORT_MASK;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);

	return port && port->ifindex == ifindex ? port : (void *)0;
}

/* The target of a number, if packets may go there. */
INLINE struct balance_target *usable(__u32 number)
{
	struct balance_target *target = bpf_map_lookup_elem(&targets, &number);

	return target && (target->state == TARGET_SERVING || target->state == TARGET_DRAINING) ? target : (void *)0;
}

/* Reads the frame down to IP. */
INLINE enum reason read_frame(struct xdp_md *ctx, struct choice *choice, __u32 *is_v6)
{
	struct ethernet *ethernet = place(ctx, 0);

	choice->from = port_of(ctx->ingress_ifindex);
	if (!choice->from)
		return REASON_OTHER_PORT;
	if ((void *)(ethernet + 1) > limit(ctx))
		return REASON_TRUNCATED;
	if (ethernet->proto == be16(ETH_P_8021Q) || ethernet->proto == be16(ETH_P_8021AD))
		return REASON_UNKNOWN_VLAN;
	if (ethernet->proto != be16(ETH_P_IP) && ethernet->proto != be16(ETH_P_IPV6))
		return REASON_NOT_IP;
	if (!is_same_mac(ethernet->dest, choice->from->mac))
		return REASON_OTHER_HOST;
	*is_v6 = ethernet->proto == be16(ETH_P_IPV6);
	return REASON_FORWARDED;
}

/* Reads the header of IP. */
INLINE enum reason read_ip(struct xdp_md *ctx, __u32 is_v6, struct bpf_fib_lookup *fib)
{
	struct packet packet = {};
	enum reason reason = is_v6 ? read_v6(ctx, AT_IP, &packet, fib) : read_plain_v4(ctx, &packet, fib);

	if (reason != REASON_FORWARDED)
		return reason;
	if (packet.is_special)
		return REASON_NOT_UNICAST;
	return packet.has_options ? REASON_OPTIONS : REASON_FORWARDED;
}

/* Whether an encapsulated packet is for this balancer itself. */
INLINE int is_for_us(const struct bpf_fib_lookup *fib, const struct balance_settings *settings)
{
	if (fib->family == AF_INET)
		return settings->source4 && fib->ipv4_dst == settings->source4;
	return (settings->source6[0] | settings->source6[3]) && is_same(fib->ipv6_dst, settings->source6);
}

/* Takes the packet out of the tunnel of another site. */
NOINLINE int take_of_site(struct xdp_md *ctx, struct bpf_fib_lookup *fib)
{
	struct tunnel tunnel = {};
	struct egress_key key = {};
	enum reason reason;

	if (!fib)
		return REASON_TUNNEL;
	key.is_v6 = fib->family == AF_INET6;
	if (key.is_v6)
		__builtin_memcpy(key.address, fib->ipv6_src, 16);
	else
		key.address[0] = fib->ipv4_src;
	if (!bpf_map_lookup_elem(&peers, &key))
		return REASON_STRANGER;
	reason = read_tunnel(ctx, fib, &tunnel);
	if (reason == REASON_FORWARDED)
		reason = unwrap(ctx, &tunnel);
	if (reason != REASON_FORWARDED)
		return reason;
	__builtin_memset(fib, 0, sizeof(*fib));
	reason = read_ip(ctx, tunnel.inner_is_v6, fib);
	return reason == REASON_FORWARDED || reason >= REASON_BLACKHOLE ? reason : REASON_TUNNEL;
}

/* The target that the connection id of a QUIC packet names, or 0. */
INLINE __u32 server_of(struct xdp_md *ctx, const struct flow *flow, const struct balance_settings *settings)
{
	/* As far as the number in a long header: first byte, version, length of the id, first octet of it, number. */
	__u8 bytes[9] = {}, octet;
	__u32 server, *target;

	if (bpf_xdp_load_bytes(ctx, flow->payload + sizeof(struct udp), bytes, sizeof(bytes)))
		return 0;
	if (bytes[0] & 0x80) {
		octet = bytes[6];
		server = (__u32)bytes[7] << 8 | bytes[8];
		if ((octet & 31) + 1 != bytes[5])
			return 0;
	} else {
		octet = bytes[1];
		server = (__u32)bytes[2] << 8 | bytes[3];
	}
	/* Three bits of configuration, and the bytes behind this one. */
	if (octet >> 5 != settings->quic_config || (octet & 31) < 2)
		return 0;
	target = bpf_map_lookup_elem(&quic_servers, &server);
	return target && usable(*target) ? *target : 0;
}

/* Asks the table of connections, and keeps it. Flows stay where they are as long as that edge takes packets. */
NOINLINE int remember(struct choice *choice)
{
	struct connection_key key = {};
	struct connection *found, next = {};
	struct balance_target *target;
	__u32 number;
	int is_new, is_udp;

	if (!choice)
		return 0;
	is_udp = choice->flow.protocol == PROTO_UDP;
	is_new = !choice->flow.is_error && !is_udp && (choice->flow.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN &&
		 !choice->is_question;
	__builtin_memcpy(key.source, choice->flow.source, 16);
	__builtin_memcpy(key.dest, choice->flow.dest, 16);
	key.source_port = choice->flow.source_port;
	key.dest_port = choice->flow.dest_port;
	key.protocol = choice->flow.protocol;
	key.is_v6 = choice->flow.is_v6;
	next.seen = bpf_ktime_get_coarse_ns() / SECOND_NS;
	found = bpf_map_lookup_elem(&connections, &key);
	if (found) {
		number = found->target;
		target = usable(number);
		if (target && target->generation == found->generation && !is_new &&
		    !(is_udp && next.seen - found->seen > BALANCE_UDP_SECONDS)) {
			choice->is_remembered = 1;
			if (number != choice->target) {
				choice->second = choice->target;
				choice->target = number;
			}
			/* Written once a second, so that processors do not take the line from each other. */
			if (is_udp && !choice->flow.is_error && !choice->is_question && found->seen != next.seen)
				found->seen = next.seen;
			return 0;
		}
		if (choice->flow.is_error)
			return 0;
		if (is_new) {
			/* A new connection, whose next packet is remembered anew. */
			if (number != choice->target)
				bpf_map_delete_elem(&connections, &key);
			return 0;
		}
	}
	/* A flood of SYN fills no table, and an end needs no memory. */
	if (is_new || choice->is_question || choice->flow.is_error || (!is_udp && choice->flow.flags & TCP_RST))
		return 0;
	number = choice->target;
	target = bpf_map_lookup_elem(&targets, &number);
	if (!target)
		return 0;
	next.target = number;
	next.generation = target->generation;
	bpf_map_update_elem(&connections, &key, &next, BPF_ANY);
	return 0;
}

/* Chooses the edge of a packet to a virtual address. */
INLINE enum reason choose_edge(struct xdp_md *ctx, struct choice *choice, const struct virtual_ranges *ranges)
{
	struct flow *flow = &choice->flow;
	const struct balance_settings *settings = choice->settings;
	int is_pair = flow->is_fragment || flow->is_echo;
	int has_ports = flow->protocol == PROTO_TCP || flow->protocol == PROTO_UDP;
	__u16 port = be16(flow->dest_port), is_quic = 0;
	__u32 key, *cell, server;
	int is_found = is_pair;

	if (flow->is_fragment && !settings->takes_fragments)
		return REASON_FRAGMENT_DROPPED;
	if (!is_pair && !has_ports)
		return REASON_NO_SERVICE;
	choice->pool = ranges->ranges[0].pool;
	for (__u32 i = 0; i < BALANCE_RANGES && !is_pair; i++) {
		const struct virtual_range *range = &ranges->ranges[i];

		if (i >= ranges->count)
			break;
		if (port >= range->first && port <= range->last) {
			choice->pool = range->pool;
			is_quic = range->is_quic;
			is_found = 1;
			break;
		}
	}
	if (!is_found)
		return REASON_NO_SERVICE;
	choice->slot = choice->hash & (BALANCE_SLOTS - 1);
	key = choice->pool * BALANCE_SLOTS + choice->slot;
	cell = bpf_map_lookup_elem(&pool_slots, &key);
	if (cell) {
		choice->target = *cell & 0xffff;
		choice->second = *cell >> 16;
	}
	if (is_quic && !is_pair && !flow->is_error) {
		server = server_of(ctx, flow, settings);
		if (server) {
			choice->target = server;
			choice->second = 0;
			choice->is_by_id = 1;
			return REASON_BALANCED;
		}
	}
	if (settings->has_connections && !is_pair && choice->target)
		remember(choice);
	if (!choice->target)
		return REASON_NO_EDGE;
	return is_pair ? REASON_BALANCED_PAIR : REASON_BALANCED;
}

/* Chooses the machine of a packet to an egress address, by the port that the machine has dialled from. */
INLINE enum reason choose_machine(struct choice *choice)
{
	struct flow *flow = &choice->flow;
	struct egress_key key = { .is_v6 = flow->is_v6 };
	struct egress_owners *owners;
	__u32 slice;

	__builtin_memcpy(key.address, flow->dest, 16);
	owners = bpf_map_lookup_elem(&egress, &key);
	if (!owners)
		return choice->is_of_site ? REASON_NO_SERVICE : REASON_NOT_VIRTUAL;
	if (owners->site) {
		if (choice->is_of_site)
			return REASON_SITE_LOOP;
		choice->target = owners->site;
		return REASON_SITE;
	}
	if (flow->is_fragment)
		return REASON_SLICE_FRAGMENT;
	slice = be16(flow->dest_port) >> BALANCE_SLICE_SHIFT & (BALANCE_SLICES - 1);
	/* What is for no slice, as an echo request, is for this machine. */
	if (!slice)
		return choice->is_of_site ? REASON_NO_SERVICE : REASON_NOT_VIRTUAL;
	choice->target = owners->owners[slice];
	return choice->target ? REASON_SLICE : REASON_SLICE_FREE;
}

/* Whether the destination is a virtual address, or an egress address. */
NOINLINE int is_shared(const struct flow *flow)
{
	struct virtual_key key = {};
	struct egress_key other = {};

	if (!flow)
		return 0;
	__builtin_memcpy(key.address, flow->dest, 16);
	key.is_v6 = flow->is_v6;
	if (bpf_map_lookup_elem(&virtuals, &key))
		return 1;
	__builtin_memcpy(other.address, flow->dest, 16);
	other.is_v6 = flow->is_v6;
	return bpf_map_lookup_elem(&egress, &other) != (void *)0;
}

/* Where the packet goes. */
INLINE enum reason choose(struct xdp_md *ctx, struct choice *choice)
{
	struct flow *flow = &choice->flow;
	struct virtual_key key = { .is_v6 = flow->is_v6 };
	struct virtual_ranges *ranges;
	int has_ports = flow->protocol == PROTO_TCP || flow->protocol == PROTO_UDP;
	enum reason reason;

	__builtin_memcpy(key.address, flow->dest, 16);
	key.protocol = has_ports ? flow->protocol : 0;
	choice->hash = flow_hash(flow, choice->settings->seed);
	ranges = choice->is_of_site ? (void *)0 : bpf_map_lookup_elem(&virtuals, &key);
	if (ranges) {
		reason = shield_limit(flow, choice->is_question);
		return reason == REASON_FORWARDED ? choose_edge(ctx, choice, ranges) : reason;
	}
	if (has_ports && !choice->is_of_site) {
		key.protocol = 0;
		if (bpf_map_lookup_elem(&virtuals, &key))
			return REASON_NO_SERVICE;
	}
	return choose_machine(choice);
}

/* Fills in the outer headers, and asks for the way. */
INLINE enum reason find_way(struct xdp_md *ctx, struct choice *choice, struct bpf_fib_lookup *fib, enum reason chosen)
{
	struct route_out *out = &choice->out;
	const struct balance_settings *settings = choice->settings;
	struct balance_target *target = usable(choice->target), *second = (void *)0;
	long result;

	if (!target)
		return REASON_NO_EDGE;
	if (settings->has_second && choice->second && !choice->flow.is_fragment && choice->second != choice->target)
		second = usable(choice->second);
	out->family = target->family;
	out->is_gue = settings->is_gue;
	out->inner_is_v6 = choice->flow.is_v6;
	out->tos = choice->flow.tos;
	out->length = choice->flow.length;
	out->port = settings->gue_port;
	out->source_port = be16(GUE_SOURCES | (choice->hash >> 16 & 0x3fff));
	__builtin_memcpy(out->dest, target->address, 16);
	if (target->family == 6)
		__builtin_memcpy(out->source, settings->source6, 16);
	else
		out->source[0] = settings->source4;
	if (second) {
		out->second_family = second->family;
		__builtin_memcpy(out->second, second->address, 16);
	}
	out->overhead = overhead_of(out);
	result = ask_way(ctx, out, fib);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED) {
		choice->mtu = fib->mtu_result - out->overhead;
		return REASON_TOO_BIG;
	}
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH)
		return REASON_NEIGHBOR;
	if (result == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return REASON_FORWARDING_OFF;
	if (result != BPF_FIB_LKUP_RET_SUCCESS)
		return REASON_NO_ROUTE;
	choice->to = port_of(fib->ifindex);
	return choice->to ? chosen : REASON_OTHER_PORT;
}

/* Says what becomes of a packet. */
INLINE enum reason decide(struct xdp_md *ctx, struct choice *choice, struct bpf_fib_lookup *fib)
{
	__u32 zero = 0, is_v6 = 0;
	enum reason reason = read_frame(ctx, choice, &is_v6);

	if (reason != REASON_FORWARDED)
		return reason;
	choice->settings = bpf_map_lookup_elem(&balance_set, &zero);
	if (!choice->settings)
		return REASON_NOT_VIRTUAL;
	reason = read_ip(ctx, is_v6, fib);
	if (reason != REASON_FORWARDED)
		return reason;
	if (is_tunnel(fib, choice->settings->gue_port) && is_for_us(fib, choice->settings)) {
		reason = take_of_site(ctx, fib);
		if (reason != REASON_FORWARDED)
			return reason;
		choice->is_of_site = 1;
	}
	reason = read_flow(ctx, fib, &choice->flow);
	/* What is for this machine is the kernel's, whatever is in it. */
	if (reason != REASON_FORWARDED)
		return choice->is_of_site || is_shared(&choice->flow) ? reason : REASON_NOT_VIRTUAL;
	reason = choose(ctx, choice);
	if (reason < REASON_BALANCED || reason > REASON_SITE)
		return reason;
	return find_way(ctx, choice, fib, reason);
}

/* Encapsulates the packet, or answers it. */
INLINE enum reason send(struct xdp_md *ctx, struct choice *choice, const struct bpf_fib_lookup *fib, enum reason reason)
{
	enum reason done;

	if (reason == REASON_TOO_BIG) {
		/* Nobody answers an error, nor a fragment without its beginning (RFC 1812, section 4.3.2.7). */
		if (choice->flow.is_error || choice->flow.is_later_fragment)
			return REASON_TOO_BIG_DROPPED;
		if (!error_take())
			return REASON_ICMP_LIMITED;
		return choice->flow.is_v6 ? answer_too_big_v6(ctx, &choice->flow, choice->mtu)
					  : answer_too_big_v4(ctx, &choice->flow, choice->mtu);
	}
	/* The kernel asks for a neighbour, or sends by a device that is no port: both with the outer headers. */
	if (reason == REASON_NEIGHBOR || reason == REASON_OTHER_PORT) {
		done = wrap(ctx, &choice->out);
		return done == REASON_FORWARDED ? reason : done;
	}
	if (reason < REASON_BALANCED || reason > REASON_SITE)
		return reason;
	done = wrap(ctx, &choice->out);
	if (done == REASON_FORWARDED)
		done = address_frame(ctx, fib);
	return done == REASON_FORWARDED ? reason : done;
}

INLINE void add(struct counter *counter, __u64 bytes)
{
	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

INLINE void count(const struct choice *choice, enum reason reason, __u64 bytes)
{
	__u32 key = (choice->from ? choice->from->row : 0) * MAX_REASONS + reason, target = choice->target;

	add(bpf_map_lookup_elem(&counters, &key), bytes);
	if (target && (reason == REASON_NEIGHBOR || reason == REASON_OTHER_PORT ||
		       (reason >= REASON_BALANCED && reason <= REASON_SITE)))
		add(bpf_map_lookup_elem(&target_counts, &target), bytes);
}

SEC("xdp")
int sallyport_balance(struct xdp_md *ctx)
{
	struct choice choice = {};
	struct bpf_fib_lookup fib = {};
	__u64 bytes = bytes_of(ctx);
	struct dump *dump = dump_begin(ctx);
	enum reason reason = decide(ctx, &choice, &fib);

	/* No port: not a packet of this program. */
	if (choice.from)
		reason = send(ctx, &choice, &fib, reason);
	count(&choice, reason, bytes);
	dump_end(ctx, dump, reason, choice.from, reason == REASON_TOO_BIG_SENT ? choice.from : choice.to);
	if (reason == REASON_TOO_BIG_SENT)
		return XDP_TX;
	if (LIKELY(reason >= REASON_BALANCED && reason <= REASON_SITE && choice.to))
		return bpf_redirect_map(&devices, choice.to->parent & PORT_MASK, XDP_DROP);
	if (reason == REASON_NOT_VIRTUAL || reason < REASON_BLACKHOLE)
		return XDP_PASS;
	return XDP_DROP;
}

SEC("xdp")
int sallyport_balance_explain(struct xdp_md *ctx)
{
	struct choice choice = { .is_question = 1 };
	struct bpf_fib_lookup fib = {};
	enum reason reason = decide(ctx, &choice, &fib);
	__u32 key = 0;
	struct balance_verdict *verdict = bpf_map_lookup_elem(&balance_verdicts, &key);

	if (!verdict)
		return XDP_ABORTED;
	verdict->reason = reason;
	verdict->target = choice.target;
	verdict->second = choice.second;
	verdict->pool = choice.pool;
	verdict->slot = choice.slot;
	verdict->is_remembered = choice.is_remembered;
	verdict->is_by_id = choice.is_by_id;
	verdict->to = choice.to ? choice.to->ifindex : 0;
	verdict->mtu = choice.mtu;
	return XDP_DROP;
}

/* The kernel gives its routes only to programs under a licence that the GPL is compatible with. */
const char terms[] SEC("license") = "GPL";
