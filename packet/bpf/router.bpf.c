// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/*
 * The router: looks up the kernel's routes, or the copy of them in `fib.h`, and forwards.
 *
 * `decide` says what becomes of a packet, and `forward` rewrites it. `sallyport_router` runs on every port;
 * `sallyport_explain` only decides, for `packet explain`. What this program cannot do itself is left to the kernel:
 * neighbours, ICMP errors, options, packets for this machine.
 */
#include "dump.h"
#include "fib.h"
#include "nat.h"
#include "nat_clock.h"
#include "policy.h"
#include "parse.h"
#include "refuse.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VLANS);
	__type(key, struct vlan_key);
	__type(value, __u32);
} vlans SEC(".maps");

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verdict);
} verdicts SEC(".maps");

/* The device of this index, if it is a port or a VLAN of one. */
INLINE struct port *port_of(__u32 ifindex)
{
	__u32 slot = ifindex & PORT_MASK;
	struct port *port = bpf_map_lookup_elem(&ports, &slot);

	return port && port->ifindex == ifindex ? port : (void *)0;
}

/* The verdict of XDP for a reason. */
INLINE int action_of(enum reason reason)
{
	if (reason == REASON_FORWARDED)
		return XDP_REDIRECT;
	return reason >= REASON_BLACKHOLE ? XDP_DROP : XDP_PASS;
}

INLINE enum reason reason_of_lookup(long result)
{
	switch (result) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		return REASON_FORWARDED;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return REASON_BLACKHOLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return REASON_UNREACHABLE;
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return REASON_PROHIBIT;
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return REASON_NOT_ROUTED;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return REASON_FORWARDING_OFF;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return REASON_NEIGHBOR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return REASON_TOO_BIG;
	default:
		return REASON_UNSUPPORTED;
	}
}

/* Whether a route leads on, to a neighbour. */
INLINE int has_way(enum reason reason)
{
	return reason == REASON_FORWARDED || reason == REASON_TOO_BIG || reason == REASON_NEIGHBOR ||
	       reason == REASON_OTHER_PORT || reason == REASON_UNSUPPORTED;
}

/* Whether the kernel looks up: always without tables, and with them while `ip rule` has rules that they do not know. */
INLINE int is_by_kernel(__u32 ifindex)
{
	struct link *link;

	if (!has_fib)
		return 1;
	link = link_of(ifindex);
	return link && link->forwards & LINK_BY_KERNEL;
}

/* Whether the source has a way back: by the device that the packet came from, or by any (RFC 3704). */
INLINE int is_source_right(struct xdp_md *ctx, struct bpf_fib_lookup *fib, __u8 urpf, int by_kernel)
{
	struct bpf_fib_lookup back = {};

	if (!by_kernel)
		return is_fib_source_right(fib, urpf);
	back.family = fib->family;
	back.l4_protocol = fib->l4_protocol;
	back.ifindex = fib->ifindex;
	__builtin_memcpy(back.ipv6_src, fib->ipv6_dst, 16);
	__builtin_memcpy(back.ipv6_dst, fib->ipv6_src, 16);
	if (bpf_fib_lookup(ctx, &back, sizeof(back), BPF_FIB_LOOKUP_SKIP_NEIGH) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	return urpf == URPF_LOOSE || back.ifindex == fib->ifindex;
}

/*
 * Whether a tag with the number 0 hides a packet: the kernel takes off such tags, of 802.1ad too, and routes what is
 * behind them for this device. Nobody would have asked about the source.
 */
INLINE int is_hidden(struct xdp_md *ctx, const struct ethernet *ethernet, const struct packet *packet)
{
	struct vlan *tag = at(ctx, packet->offset);

	if (ethernet->proto == be16(ETH_P_8021Q) && !packet->vid)
		return 1;
	return (void *)(tag + 1) > end(ctx) || !(be16(tag->tci) & VID_MASK);
}

/* Reads the frame down to IP, and finds the device that the packet came from. */
INLINE enum reason read_frame(struct xdp_md *ctx, struct packet *packet, struct port **from)
{
	struct ethernet *ethernet = at(ctx, 0);
	struct port *port = port_of(ctx->ingress_ifindex);
	__be16 proto;

	*from = port;
	if (!port)
		return REASON_OTHER_PORT;
	if ((void *)(ethernet + 1) > end(ctx))
		return REASON_TRUNCATED;
	proto = ethernet->proto;
	packet->offset = sizeof(*ethernet);
	if (proto == be16(ETH_P_8021Q)) {
		struct vlan *vlan = at(ctx, sizeof(*ethernet));

		if ((void *)(vlan + 1) > end(ctx))
			return REASON_TRUNCATED;
		proto = vlan->proto;
		packet->offset += sizeof(*vlan);
		packet->vid = be16(vlan->tci) & VID_MASK;
		packet->priority = be16(vlan->tci) & ~VID_MASK;
	}
	if (packet->vid) {
		struct vlan_key key = { .port = port->ifindex, .vid = packet->vid };
		__u32 *device = bpf_map_lookup_elem(&vlans, &key);

		port = device ? port_of(*device) : (void *)0;
		if (!port)
			return REASON_UNKNOWN_VLAN;
		*from = port;
	}
	if ((proto == be16(ETH_P_8021Q) || proto == be16(ETH_P_8021AD)) && port->urpf != URPF_OFF &&
	    is_hidden(ctx, ethernet, packet))
		return REASON_MALFORMED;
	if (proto != be16(ETH_P_IP) && proto != be16(ETH_P_IPV6))
		return REASON_NOT_IP;
	packet->is_v6 = proto == be16(ETH_P_IPV6);
	if (LIKELY(is_same_mac(ethernet->dest, port->mac)))
		return REASON_FORWARDED;
	/* A switch floods frames of others, and a card in promiscuous mode shows them. The kernel drops these unread. */
	packet->is_for_group = ethernet->dest[0] & 1;
	return packet->is_for_group && port->urpf != URPF_OFF ? REASON_FORWARDED : REASON_OTHER_HOST;
}

/* Says what becomes of a packet. `from` and `to` are ports or VLANs of ports; `to` is set if it is forwarded. */
INLINE enum reason decide(struct xdp_md *ctx, struct packet *packet, struct bpf_fib_lookup *fib,
			  struct translation *translation, struct port **from, struct port **to)
{
	enum reason reason = read_frame(ctx, packet, from);
	int by_kernel;

	if (reason != REASON_FORWARDED)
		return reason;
	/* Two calls with a constant each, so that the compiler knows every offset. */
	if (packet->offset == sizeof(struct ethernet))
		reason = packet->is_v6 ? read_v6(ctx, sizeof(struct ethernet), packet, fib)
				       : read_v4(ctx, sizeof(struct ethernet), packet, fib);
	else
		reason = packet->is_v6 ? read_v6(ctx, sizeof(struct ethernet) + sizeof(struct vlan), packet, fib)
				       : read_v4(ctx, sizeof(struct ethernet) + sizeof(struct vlan), packet, fib);
	if (reason != REASON_FORWARDED)
		return reason;
	fib->ifindex = (*from)->ifindex;
	by_kernel = is_by_kernel(fib->ifindex);
	if ((*from)->urpf != URPF_OFF && !is_source_right(ctx, fib, (*from)->urpf, by_kernel))
		return REASON_URPF;
	/* The kernel forwards no frame for a group, and delivers it: only its source had to be asked about. */
	if (packet->is_for_group)
		return REASON_OTHER_HOST;
	if (packet->is_special)
		return REASON_NOT_UNICAST;
	if (packet->has_options)
		return REASON_OPTIONS;
	if (packet->is_fragment && (policy.is_on || nat.engine == NAT_XDP))
		packet->fragment = fragment_read(ctx, packet->offset, packet->is_v6);
	reason = nat_before(ctx, packet, fib, translation);
	if (reason != REASON_FORWARDED)
		return reason;
	reason = by_kernel ? reason_of_lookup(bpf_fib_lookup(ctx, fib, sizeof(*fib), 0)) : look_up(fib);
	/* As in the kernel: only what has a way can end on it. Black holes swallow the rest, and this machine takes it. */
	if (packet->hops <= 1 && has_way(reason))
		return REASON_TTL;
	if (reason != REASON_FORWARDED)
		return reason;
	*to = port_of(fib->ifindex);
	if (!*to)
		return REASON_OTHER_PORT;
	if (!by_kernel)
		__builtin_memcpy(fib->smac, (*to)->mac, 6);
	return REASON_FORWARDED;
}

/* Takes one from the time to live. The sum changes by the same (RFC 1624). */
INLINE int age(struct xdp_md *ctx, __u32 offset, __u32 is_v6)
{
	if (is_v6) {
		struct ipv6 *ip = at(ctx, offset);

		if ((void *)(ip + 1) > end(ctx))
			return 0;
		ip->hops--;
	} else {
		struct ipv4 *ip = at(ctx, offset);
		__u32 check;

		if ((void *)(ip + 1) > end(ctx))
			return 0;
		check = ip->check + be16(0x0100);
		ip->check = check + (check >= 0xffff);
		ip->ttl--;
	}
	return 1;
}

/* Rewrites the packet for the next hop. Nothing is changed before the tag has its room. */
INLINE enum reason forward(struct xdp_md *ctx, struct packet *packet, struct bpf_fib_lookup *fib, struct port *to)
{
	int was_tagged = packet->offset != sizeof(struct ethernet);
	int is_tagged = to->vid != 0;
	struct ethernet *ethernet;

	if (was_tagged != is_tagged) {
		int delta = was_tagged ? (int)sizeof(struct vlan) : -(int)sizeof(struct vlan);

		if (bpf_xdp_adjust_head(ctx, delta))
			return REASON_NO_ROOM;
	}
	if (!(is_tagged ? age(ctx, sizeof(struct ethernet) + sizeof(struct vlan), packet->is_v6)
			: age(ctx, sizeof(struct ethernet), packet->is_v6)))
		return REASON_TRUNCATED;
	ethernet = at(ctx, 0);
	if ((void *)(ethernet + 1) > end(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(ethernet->dest, fib->dmac, 6);
	__builtin_memcpy(ethernet->source, fib->smac, 6);
	ethernet->proto = packet->is_v6 ? be16(ETH_P_IPV6) : be16(ETH_P_IP);
	if (is_tagged) {
		struct vlan *vlan = (void *)(ethernet + 1);

		if ((void *)(vlan + 1) > end(ctx))
			return REASON_TRUNCATED;
		vlan->proto = ethernet->proto;
		vlan->tci = be16(packet->priority | to->vid);
		ethernet->proto = be16(ETH_P_8021Q);
	}
	return REASON_FORWARDED;
}

INLINE void count(const struct port *from, enum reason reason, __u64 bytes)
{
	__u32 row = from ? from->row : 0;
	__u32 key = row * MAX_REASONS + reason;
	struct counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

/*
 * The second step of the NAT, and the memory of fragments. The kernel asks for a next hop without an address. Of the
 * sessions of the NAT it knows nothing, so a packet for the inside gets its new address before, and the mark: connection
 * tracking would take it for the beginning of a flow, and the answers would leave with the address of the inside.
 */
INLINE enum reason translate(struct xdp_md *ctx, struct packet *packet, struct translation *t, __u32 mtu,
			     enum reason reason)
{
	enum reason done;

	if (nat_is_for_inside(t) && error_of(reason)) {
		/* The kernel fragments it, if it is whole and no policy has to judge it: the kernel's would not know its flow. */
		if (reason != REASON_TOO_BIG || policy.is_on || packet->is_fragment || !may_fragment(ctx, packet->offset))
			return refuse(ctx, packet, t, reason, mtu);
	} else if (reason == REASON_OTHER_PORT && nat_is_for_inside(t)) {
		return nat_is_forwarded(t) ? reason : REASON_NAT_OTHER_PORT;
	} else if (reason != REASON_FORWARDED && reason != REASON_NEIGHBOR) {
		return reason;
	}
	/* The kernel translates this one, with all of its fragments. */
	if (reason == REASON_NEIGHBOR && t->does_source && !nat_is_for_inside(t))
		return reason;
	done = nat_after(ctx, packet, t);
	if (done != REASON_FORWARDED)
		return done;
	if (packet->fragment == FRAGMENT_FIRST && (policy.is_on || t->does_source || t->does_dest))
		fragment_remember(t);
	if (reason != REASON_FORWARDED && nat_is_for_inside(t))
		write_mark(ctx, nat.mark);
	return reason;
}

SEC("xdp")
int sallyport_router(struct xdp_md *ctx)
{
	struct packet packet = {};
	struct bpf_fib_lookup fib = {};
	struct translation translation = {};
	struct port *from = (void *)0, *to = (void *)0;
	__u64 bytes = bytes_of(ctx);
	struct dump *dump = dump_begin(ctx);
	enum reason reason = decide(ctx, &packet, &fib, &translation, &from, &to);
	int is_answer;

	reason = policy_check(ctx, &packet, &translation, &fib, from ? from->ifindex : 0, reason, 0);
	reason = translate(ctx, &packet, &translation, fib.mtu_result, reason);
	if (reason == REASON_FORWARDED && to)
		reason = forward(ctx, &packet, &fib, to);
	count(from, reason, bytes);
	/* Back by the same port. Not by XDP_TX: a veth device does not wake a peer for that, unless it has a program. */
	is_answer = reason == REASON_TOO_BIG_SENT || reason == REASON_ERROR_SENT;
	if (is_answer)
		to = from;
	dump_end(ctx, dump, reason, from, to);
	if (is_answer && to)
		return bpf_redirect_map(&devices, to->parent & PORT_MASK, XDP_DROP);
	if (LIKELY(reason == REASON_FORWARDED && to))
		return bpf_redirect_map(&devices, to->parent & PORT_MASK, XDP_DROP);
	return action_of(reason);
}

SEC("xdp")
int sallyport_explain(struct xdp_md *ctx)
{
	struct packet packet = {};
	struct bpf_fib_lookup fib = {};
	struct translation translation = {};
	struct port *from = (void *)0, *to = (void *)0;
	enum reason decided = decide(ctx, &packet, &fib, &translation, &from, &to), reason;
	__u32 key = 0;
	struct verdict *verdict = bpf_map_lookup_elem(&verdicts, &key);

	reason = policy_check(ctx, &packet, &translation, &fib, from ? from->ifindex : 0, decided, 1);
	if (!verdict)
		return XDP_ABORTED;
	nat_explain(&translation, verdict);
	verdict->rule = policy_rule_of(decided, reason);
	verdict->reason = reason;
	verdict->from = from ? from->ifindex : 0;
	verdict->to = fib.ifindex;
	verdict->mtu = fib.mtu_result;
	__builtin_memcpy(verdict->hop, fib.ipv6_dst, 16);
	__builtin_memcpy(verdict->smac, fib.smac, 6);
	__builtin_memcpy(verdict->dmac, fib.dmac, 6);
	return action_of(reason);
}

/* The kernel gives its routes only to programs under a licence that the GPL is compatible with. */
const char terms[] SEC("license") = "GPL";
