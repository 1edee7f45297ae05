/*
 * NAT by the kernel's connection tracking: nftables translates the first packets, and XDP those of known flows.
 *
 * The functions of the kernel are weak: a kernel without them loads the program, as long as this engine is off.
 */
#ifndef SALLYPORT_CONNTRACK_H
#define SALLYPORT_CONNTRACK_H

#include "parse.h"

#define IPS_SEEN_REPLY 2u
#define IPS_CONFIRMED 8u
#define IPS_DYING 512u
#define TCP_CONNTRACK_ESTABLISHED 3
#define KERNEL_TYPE __attribute__((preserve_access_index))

/* What is read of the kernel's own types; the loader finds the places. */
union nf_inet_addr {
	__be32 ip;
} KERNEL_TYPE;
union nf_conntrack_man_proto {
	__be16 all;
} KERNEL_TYPE;
struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} KERNEL_TYPE;
struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
		__u8 dir;
	} dst;
} KERNEL_TYPE;
struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} KERNEL_TYPE;
struct ip_ct_tcp {
	__u8 state;
} KERNEL_TYPE;
union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} KERNEL_TYPE;
struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	union nf_conntrack_proto proto;
} KERNEL_TYPE;

/* The question to connection tracking: the layout is the kernel's. */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};
struct bpf_sock_tuple {
	struct {
		__be32 saddr;
		__be32 daddr;
		__be16 sport;
		__be16 dport;
	} ipv4;
};
/* The kernel wants 12 bytes for IPv4. */
_Static_assert(sizeof(struct bpf_sock_tuple) == 12, "the layout of the kernel");

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 size,
					 struct bpf_ct_opts *options, __u32 options_size) __attribute__((weak, section(".ksyms")));
extern int bpf_ct_change_timeout(struct nf_conn *flow, __u32 milliseconds) __attribute__((weak, section(".ksyms")));
extern void bpf_ct_release(struct nf_conn *flow) __attribute__((weak, section(".ksyms")));

/* Whether the flow goes both ways, and the packet ends nothing: then the kernel needs not see it. */
INLINE int conntrack_is_settled(struct nf_conn *flow, const struct translation *t)
{
	unsigned long status = flow->status;

	if (!(status & IPS_SEEN_REPLY) || !(status & IPS_CONFIRMED) || (status & IPS_DYING))
		return 0;
	if (t->source.protocol != PROTO_TCP)
		return 1;
	return flow->proto.tcp.state == TCP_CONNTRACK_ESTABLISHED && !(t->segment.flags & (TCP_SYN | TCP_FIN | TCP_RST));
}

/* Finds the flow in connection tracking. */
INLINE enum reason nat_before_conntrack(struct xdp_md *ctx, struct ipv4 *ip, struct translation *t)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_ct_opts options = { .netns_id = -1 };
	struct nf_conn *flow;
	enum reason reason = nat_read(ctx, ip, t);
	__u64 lifetime;

	if (reason != REASON_FORWARDED)
		return reason;
	/* The lookup knows no ICMP. */
	if (t->is_error || t->source.protocol == PROTO_ICMP)
		return REASON_NAT_KERNEL;
	tuple.ipv4.saddr = t->source.address;
	tuple.ipv4.daddr = t->dest.address;
	tuple.ipv4.sport = t->source.port;
	tuple.ipv4.dport = t->dest.port;
	options.l4proto = t->source.protocol;
	flow = bpf_xdp_ct_lookup(ctx, &tuple, sizeof(tuple), &options, sizeof(options));
	if (!flow)
		return REASON_NAT_KERNEL;
	if (!conntrack_is_settled(flow, t)) {
		bpf_ct_release(flow);
		return REASON_NAT_KERNEL;
	}
	/* The packet becomes the opposite of what the answers look like. */
	t->new_source = t->source;
	t->new_dest = t->dest;
	if (options.dir) {
		t->new_source.address = flow->tuplehash[0].tuple.dst.u3.ip;
		t->new_source.port = flow->tuplehash[0].tuple.dst.u.all;
		t->new_dest.address = flow->tuplehash[0].tuple.src.u3.ip;
		t->new_dest.port = flow->tuplehash[0].tuple.src.u.all;
	} else {
		t->new_source.address = flow->tuplehash[1].tuple.dst.u3.ip;
		t->new_source.port = flow->tuplehash[1].tuple.dst.u.all;
		t->new_dest.address = flow->tuplehash[1].tuple.src.u3.ip;
		t->new_dest.port = flow->tuplehash[1].tuple.src.u.all;
	}
	/* The kernel sees no packet of this flow, so its life is renewed here. */
	lifetime = t->source.protocol == PROTO_TCP ? nat.lifetimes[NAT_ESTABLISHED_NS] : nat.lifetimes[NAT_UDP_NS];
	bpf_ct_change_timeout(flow, lifetime / 1000000);
	bpf_ct_release(flow);
	t->does_source = 1;
	t->does_dest = 1;
	return REASON_FORWARDED;
}

#endif
