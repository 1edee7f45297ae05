/*
 * The firewall as a step of the router, between the lookup and the second step of the NAT.
 *
 * core/packet/src/filter is the model, and the same rules stand in nftables for what goes by the kernel. A packet is
 * judged with the addresses of the inside: a new destination is known, and a source is not yet replaced. The first rule
 * that matches decides. An accepted packet makes its flow known; flows whose turn it is make room for others.
 */
#ifndef SALLYPORT_POLICY_H
#define SALLYPORT_POLICY_H

#include "nat.h"

#define POLICY_MAX_RULES 1024
#define POLICY_RANGES 8

enum { BPF_MAP_TYPE_LPM_TRIE = 11 };
enum { PROTO_ICMPV6 = 58, ANY_PROTOCOL = 256 };
enum { POLICY_ACCEPT = 0, POLICY_DROP = 1, POLICY_REJECT = 2 };
/* Bits of the states that a rule names. */
enum { STATE_NEW = 1, STATE_ESTABLISHED = 2, STATE_RELATED = 4, STATE_INVALID = 8 };
enum { FLOW_TRANSITORY_NS = 0, FLOW_ESTABLISHED_NS = 1, FLOW_UNANSWERED_NS = 2, FLOW_ANSWERED_NS = 3 };

static long (*const bpf_loop)(__u32 turns, void *function, void *context, __u64 flags) = (void *)181;

/* io/xdp/src/policy.rs writes it. */
struct policy_settings {
	__u32 is_on;
	__u32 rules;
	__u32 otherwise;
	__u32 unused;
	__u64 lifetimes[4];
	/* Of the file. */
	__u8 digest[32];
	/* The source of frames that this program has accepted, and whose next hop the kernel has to ask for. */
	__u8 mark[6];
	__u8 zero[2];
};
_Static_assert(sizeof(struct policy_settings) == 88, "io/xdp writes 88 bytes");

const volatile struct policy_settings policy SEC(".rodata.policy");

struct policy_range {
	__u16 first;
	__u16 last;
};

struct policy_rule {
	__u32 action;
	/* Bits of states; 0 for any. */
	__u32 states;
	__u32 protocol;
	/* Devices; 0 for any. */
	__u32 incoming;
	__u32 outgoing;
	/* Numbers of sets; 0 for any address. */
	__u32 from;
	__u32 to;
	__u16 source_ranges;
	__u16 dest_ranges;
	struct policy_range source[POLICY_RANGES];
	struct policy_range dest[POLICY_RANGES];
};
_Static_assert(sizeof(struct policy_rule) == 96, "io/xdp writes 96 bytes");

/* This bit of a set's number stands for IPv4: ::/0 is all of IPv6, and has no address of IPv4. */
#define POLICY_SET_V4 0x80000000u

/* A prefix of a set. IPv4 is ::ffff:0:0/96. */
struct policy_prefix {
	__u32 bits;
	/* The number, with POLICY_SET_V4 for IPv4. */
	__u32 set;
	__u32 address[4];
};

/* A flow by the direction of its first packet. */
struct policy_flow {
	__u32 source[4];
	__u32 dest[4];
	__be16 source_port;
	__be16 dest_port;
	__u8 protocol;
	__u8 zero[3];
};

struct policy_known {
	__u64 expires;
	__u8 is_answered;
	__u8 is_closing;
	/* Whether the side that began has answered an answer, which nobody can who only guesses. */
	__u8 is_assured;
	__u8 unused;
	struct connection tcp;
};
_Static_assert(sizeof(struct policy_known) == 32, "the size of a flow");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POLICY_MAX_RULES);
	__type(key, __u32);
	__type(value, struct policy_rule);
} policy_rules SEC(".maps");

/* Packets of each rule; the last is for packets that no rule matches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, POLICY_MAX_RULES + 1);
	__type(key, __u32);
	__type(value, __u64);
} policy_hits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct policy_prefix);
	__type(value, __u32);
} policy_sets SEC(".maps");

/* Flows that are assured. Those that are not have a table of their own, so that a flood of beginnings evicts none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct policy_flow);
	__type(value, struct policy_known);
} policy_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct policy_flow);
	__type(value, struct policy_known);
} policy_openings SEC(".maps");

/* The settings of the loaded program, for the next one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_settings);
} policy_settings SEC(".maps");

/* A packet in question, and the answer. */
struct policy_question {
	struct policy_flow flow;
	/* Of an ICMP error: the flow of the packet inside. */
	struct policy_flow quoted;
	__u32 state;
	__u32 incoming;
	__u32 outgoing;
	__u32 rule;
	__u32 action;
	__u8 has_ports;
	__u8 is_error;
	__u8 may_begin;
	__u8 unused;
	struct segment segment;
	/* What is known of the flow after this packet, and the flow by the direction of its first packet. */
	struct policy_known next;
	struct policy_flow key;
};

/* The work space of a processor: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct policy_question);
} policy_space SEC(".maps");

INLINE int policy_has_address(__u32 set, const __u32 *address)
{
	struct policy_prefix prefix = { .bits = 32 + 128, .set = is_v4_mapped(address) ? set | POLICY_SET_V4 : set };

	if (!set)
		return 1;
	__builtin_memcpy(prefix.address, address, 16);
	return !!bpf_map_lookup_elem(&policy_sets, &prefix);
}

INLINE int policy_has_port(const struct policy_range *ranges, __u32 count, __be16 port, int has_ports)
{
	__u16 number = be16(port);

	if (!count)
		return 1;
	if (!has_ports)
		return 0;
#pragma unroll
	for (__u32 i = 0; i < POLICY_RANGES; i++)
		if (i < count && number >= ranges[i].first && number <= ranges[i].last)
			return 1;
	return 0;
}

/* Compares a rule with the packet. Returns 1 when the rule decides. */
static long policy_try(__u32 index, void **context)
{
	struct policy_rule *rule = bpf_map_lookup_elem(&policy_rules, &index);
	__u32 zero = 0;
	struct policy_question *q = bpf_map_lookup_elem(&policy_space, &zero);

	(void)context;
	if (!rule || !q)
		return 1;
	if (rule->states && !(rule->states & q->state))
		return 0;
	if (rule->protocol != ANY_PROTOCOL && rule->protocol != q->flow.protocol)
		return 0;
	if ((rule->incoming && rule->incoming != q->incoming) || (rule->outgoing && rule->outgoing != q->outgoing))
		return 0;
	if (!policy_has_address(rule->from, q->flow.source) || !policy_has_address(rule->to, q->flow.dest))
		return 0;
	if (!policy_has_port(rule->source, rule->source_ranges, q->flow.source_port, q->has_ports) ||
	    !policy_has_port(rule->dest, rule->dest_ranges, q->flow.dest_port, q->has_ports))
		return 0;
	q->rule = index;
	q->action = rule->action;
	return 1;
}

INLINE void policy_reverse(struct policy_flow *to, const struct policy_flow *flow)
{
	__builtin_memcpy(to->source, flow->dest, 16);
	__builtin_memcpy(to->dest, flow->source, 16);
	to->source_port = flow->dest_port;
	to->dest_port = flow->source_port;
	to->protocol = flow->protocol;
	__builtin_memset(to->zero, 0, 3);
}

/* Finds a known flow by a packet of either direction. */
NOINLINE struct policy_known *policy_find(struct policy_flow *flow, __u32 *is_reply)
{
	struct policy_flow reversed;
	struct policy_known *known = bpf_map_lookup_elem(&policy_flows, flow);
	__u64 now = bpf_ktime_get_coarse_ns();

	*is_reply = 0;
	if (known && known->expires > now)
		return known;
	*is_reply = 1;
	policy_reverse(&reversed, flow);
	known = bpf_map_lookup_elem(&policy_flows, &reversed);
	if (known && known->expires > now)
		return known;
	known = bpf_map_lookup_elem(&policy_openings, &reversed);
	if (known && known->expires > now)
		return known;
	*is_reply = 0;
	known = bpf_map_lookup_elem(&policy_openings, flow);
	return known && known->expires > now ? known : (void *)0;
}

/* Counts a packet into what is known of its flow. Returns the place of its lifetime. */
INLINE __u32 policy_move(struct policy_known *known, struct policy_question *q, __u32 is_reply)
{
	if (is_reply)
		known->is_answered = 1;
	if (q->flow.protocol != PROTO_TCP) {
		if (known->is_answered && !is_reply)
			known->is_assured = 1;
		return known->is_answered ? FLOW_ANSWERED_NS : FLOW_UNANSWERED_NS;
	}
	if (q->segment.flags & TCP_SYN && !is_reply && known->is_closing) {
		known->is_answered = 0;
		known->is_closing = 0;
		known->is_assured = 0;
		known->tcp.known = 0;
	}
	if (tcp_count_in(&known->tcp, is_reply, &q->segment))
		known->is_closing = 1;
	/* A number that only the receiver of the answer knows. */
	if (known->is_answered && !is_reply && q->segment.flags & TCP_ACK && q->segment.ack == known->tcp.ends[1])
		known->is_assured = 1;
	return known->is_answered && !known->is_closing ? FLOW_ESTABLISHED_NS : FLOW_TRANSITORY_NS;
}

/*
 * Makes the flow of an accepted packet known, or renews it. The memory of a flow may be that of another one as soon as
 * it is evicted, so what decides is written by the key. Only the numbers of TCP are written in place.
 */
NOINLINE int policy_track(struct policy_question *q)
{
	struct policy_known *known, *next;
	__u32 is_reply = 0, was_assured;
	__u64 expires;

	if (!q || q->is_error || q->state == STATE_INVALID)
		return 0;
	next = &q->next;
	known = policy_find(&q->flow, &is_reply);
	if (known)
		*next = *known;
	else
		is_reply = 0;
	was_assured = next->is_assured;
	expires = policy.lifetimes[policy_move(next, q, is_reply) & 3] + bpf_ktime_get_coarse_ns();
	if (known && next->is_answered == known->is_answered && next->is_closing == known->is_closing &&
	    next->is_assured == was_assured && expires - known->expires < NAT_SLACK_NS) {
		known->tcp = next->tcp;
		return 0;
	}
	next->expires = expires;
	if (is_reply)
		policy_reverse(&q->key, &q->flow);
	else
		q->key = q->flow;
	if (next->is_assured) {
		bpf_map_update_elem(&policy_flows, &q->key, next, BPF_ANY);
		if (!was_assured)
			bpf_map_delete_elem(&policy_openings, &q->key);
		return 0;
	}
	bpf_map_update_elem(&policy_openings, &q->key, next, BPF_ANY);
	if (was_assured)
		bpf_map_delete_elem(&policy_flows, &q->key);
	return 0;
}

INLINE void policy_map_v4(__u32 *to, __be32 address)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = be32(0xffff);
	to[3] = address;
}

/* Takes the ends from what the NAT reads of IPv4. */
INLINE enum reason policy_read_v4(struct xdp_md *ctx, __u32 offset, const struct translation *t,
				  struct policy_question *q)
{
	struct ipv4 *ip = at(ctx, offset & 31);
	struct translation own = {};
	enum reason reason;

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	policy_map_v4(q->flow.source, ip->source);
	policy_map_v4(q->flow.dest, t->does_dest ? t->new_dest.address : ip->dest);
	q->flow.protocol = ip->proto;
	reason = nat_read(ctx, ip, &own);
	if (reason == REASON_NAT_PROTOCOL) {
		q->may_begin = ip->proto != PROTO_ICMP;
		return REASON_FORWARDED;
	}
	if (reason != REASON_FORWARDED)
		return reason;
	if (own.is_error) {
		/* The packet inside went the other way: the NAT's new destination was its source. */
		struct nat_end *source = t->does_dest ? (struct nat_end *)&t->new_dest : &own.source;

		q->is_error = 1;
		policy_map_v4(q->quoted.source, source->address);
		policy_map_v4(q->quoted.dest, own.dest.address);
		q->quoted.source_port = source->port;
		q->quoted.dest_port = own.dest.port;
		q->quoted.protocol = own.dest.protocol;
		return REASON_FORWARDED;
	}
	q->flow.source_port = own.source.port;
	q->flow.dest_port = t->does_dest ? t->new_dest.port : own.dest.port;
	q->has_ports = ip->proto != PROTO_ICMP;
	q->segment = own.segment;
	q->may_begin = own.may_begin;
	return REASON_FORWARDED;
}

/* Reads the ends of IPv6. Extension headers are for the kernel. */
INLINE enum reason policy_read_v6(struct xdp_md *ctx, __u32 offset, struct policy_question *q)
{
	struct ipv6 *ip = at(ctx, offset & 31), *quote;
	struct fragment_header *header;
	struct ports *ports;
	__u8 *bytes, kind, protocol;
	__u32 length, skip = 0;

	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	__builtin_memcpy(q->flow.source, ip->source, 16);
	__builtin_memcpy(q->flow.dest, ip->dest, 16);
	protocol = ip->next;
	length = be16(ip->payload);
	if (protocol == PROTO_FRAGMENT) {
		header = (void *)(ip + 1);
		if (length < sizeof(*header) || (void *)(header + 1) > end(ctx))
			return REASON_TRUNCATED;
		protocol = header->next;
		skip = sizeof(*header);
		length -= skip;
	}
	q->flow.protocol = protocol;
	if (protocol == 43 || protocol == PROTO_FRAGMENT || protocol == 51 || protocol == 60 || protocol == 135)
		return skip ? REASON_FRAGMENT : REASON_OPTIONS;
	q->may_begin = 1;
	if (protocol != PROTO_TCP && protocol != PROTO_UDP && protocol != PROTO_ICMPV6)
		return REASON_FORWARDED;
	ports = (void *)(ip + 1) + skip;
	bytes = (void *)ports;
	/* What is behind the packet in the frame has no say. */
	if (length < 8 || (void *)(bytes + 8) > end(ctx))
		return REASON_TRUNCATED;
	if (protocol == PROTO_ICMPV6) {
		kind = bytes[0];
		q->may_begin = kind == 128;
		if (kind == 128)
			q->flow.source_port = ports[1].source;
		else if (kind == 129)
			q->flow.dest_port = ports[1].source;
		if (kind < 1 || kind > 4)
			return REASON_FORWARDED;
		if (skip)
			return REASON_FRAGMENT;
		quote = (void *)(bytes + 8);
		if (length < 8 + sizeof(*quote) + 8 || (void *)(quote + 1) + 8 > end(ctx))
			return REASON_MALFORMED;
		q->is_error = 1;
		__builtin_memcpy(q->quoted.source, quote->source, 16);
		__builtin_memcpy(q->quoted.dest, quote->dest, 16);
		q->quoted.protocol = quote->next;
		ports = (void *)(quote + 1);
		if (quote->next == PROTO_TCP || quote->next == PROTO_UDP) {
			q->quoted.source_port = ports->source;
			q->quoted.dest_port = ports->dest;
		} else if (quote->next == PROTO_ICMPV6) {
			q->quoted.source_port = ports[1].source;
		}
		return REASON_FORWARDED;
	}
	q->has_ports = 1;
	q->flow.source_port = ports->source;
	q->flow.dest_port = ports->dest;
	if (protocol == PROTO_TCP) {
		if (length < 20 || (void *)(bytes + 20) > end(ctx))
			return REASON_TRUNCATED;
		tcp_read(bytes, length, &q->segment);
	}
	return REASON_FORWARDED;
}

/* The state of the packet's flow. */
INLINE __u32 policy_state(struct policy_question *q)
{
	__u32 is_reply, kind;
	struct policy_known *known;

	if (q->is_error) {
		/* To the sender of the packet that it quotes, as connection tracking wants it; others get no errors. */
		if ((q->quoted.source[0] ^ q->flow.dest[0]) | (q->quoted.source[1] ^ q->flow.dest[1]) |
		    (q->quoted.source[2] ^ q->flow.dest[2]) | (q->quoted.source[3] ^ q->flow.dest[3]))
			return STATE_INVALID;
		return policy_find(&q->quoted, &is_reply) ? STATE_RELATED : STATE_INVALID;
	}
	known = policy_find(&q->flow, &is_reply);
	if (known)
		return is_reply || known->is_answered ? STATE_ESTABLISHED : STATE_NEW;
	if (q->flow.protocol == PROTO_TCP) {
		/* In the middle too, as after a restart. */
		kind = q->segment.flags & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST);
		return kind == TCP_SYN || kind == TCP_ACK ? STATE_NEW : STATE_INVALID;
	}
	return q->may_begin ? STATE_NEW : STATE_INVALID;
}

/* Judges a packet. With `is_asked` alone, nothing is counted and no flow becomes known. */
GLOBAL int policy_judge(struct xdp_md *ctx, struct packet *packet, struct translation *t, __u64 ways, __u32 is_asked)
{
	__u32 zero = 0, last = POLICY_MAX_RULES;
	struct policy_question *q = bpf_map_lookup_elem(&policy_space, &zero);
	enum reason reason;
	__u64 *hits;

	if (!q || !packet || !t)
		return REASON_POLICY;
	__builtin_memset(q, 0, sizeof(*q));
	/* The first one was judged. */
	if (packet->fragment == FRAGMENT_LATER)
		return fragment_recall() ? REASON_FORWARDED : REASON_FRAGMENT;
	q->incoming = ways >> 32;
	q->outgoing = (__u32)ways;
	reason = packet->is_v6 ? policy_read_v6(ctx, packet->offset, q) : policy_read_v4(ctx, packet->offset, t, q);
	if (reason != REASON_FORWARDED)
		return reason;
	/* Connection tracking has said so. */
	q->state = nat.engine == NAT_CONNTRACK && t->does_source ? STATE_ESTABLISHED : policy_state(q);
	q->rule = last;
	q->action = policy.otherwise;
	/* A loop of no turns is never entered, and the kernel refuses a callback that nobody calls. */
	if (policy.rules)
		bpf_loop(policy.rules, policy_try, (void *)0, 0);
	if (is_asked)
		return q->action == POLICY_ACCEPT ? REASON_FORWARDED
						  : q->action == POLICY_DROP ? REASON_POLICY : REASON_POLICY_REJECT;
	hits = bpf_map_lookup_elem(&policy_hits, &q->rule);
	if (hits)
		++*hits;
	if (q->action == POLICY_DROP)
		return REASON_POLICY;
	if (q->action != POLICY_ACCEPT)
		return REASON_POLICY_REJECT;
	policy_track(q);
	return REASON_FORWARDED;
}

/* Whether the policy judges here. What goes by a device that is no port goes by the kernel both ways, and it judges. */
INLINE int policy_has_say(enum reason reason)
{
	return policy.is_on && (reason == REASON_FORWARDED || reason == REASON_NEIGHBOR);
}

/* After the lookup: what the policy says of a packet that goes on, by XDP or to a neighbour that the kernel asks for. */
INLINE enum reason policy_check(struct xdp_md *ctx, struct packet *packet, struct translation *t,
				const struct bpf_fib_lookup *fib, __u32 incoming, enum reason reason, __u32 is_asked)
{
	enum reason judged;

	if (!policy_has_say(reason))
		return reason;
	judged = policy_judge(ctx, packet, t, (__u64)incoming << 32 | fib->ifindex, is_asked);
	if (judged != REASON_FORWARDED)
		return judged;
	if (reason == REASON_NEIGHBOR && !is_asked)
		write_mark(ctx, policy.mark);
	return reason;
}

/*
 * The rule that has decided about the packet before, on this processor: its place from 1 on, and the default after the
 * last. `before` and `after` are the reasons around `policy_check`; 0 if no rule has decided.
 */
INLINE __u32 policy_rule_of(enum reason before, enum reason after)
{
	__u32 zero = 0;
	struct policy_question *q;

	if (!policy_has_say(before))
		return 0;
	if (after != before && after != REASON_POLICY && after != REASON_POLICY_REJECT)
		return 0;
	q = bpf_map_lookup_elem(&policy_space, &zero);
	if (!q)
		return 0;
	return q->rule == POLICY_MAX_RULES ? policy.rules + 1 : q->rule + 1;
}

#endif
