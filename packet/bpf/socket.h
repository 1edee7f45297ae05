/* The sockets of TCP that the kernel has. */
#ifndef SALLYPORT_SOCKET_H
#define SALLYPORT_SOCKET_H

#include "flow.h"

enum { TCP_LISTEN = 10 };

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u16 zero;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

struct tuple_v4 {
	__be32 saddr;
	__be32 daddr;
	__be16 sport;
	__be16 dport;
};

struct tuple_v6 {
	__u32 saddr[4];
	__u32 daddr[4];
	__be16 sport;
	__be16 dport;
};

static long (*const bpf_sk_release)(void *socket) = (void *)86;
static struct bpf_sock *(*const bpf_skc_lookup_tcp)(void *ctx, void *tuple, __u32 size, __u64 netns, __u64 flags) =
	(void *)99;
static long (*const bpf_tcp_check_syncookie)(void *socket, void *ip, __u32 ip_length, void *tcp, __u32 tcp_length) =
	(void *)100;

/* The socket of a flow: of its connection, or one that listens. Who takes it gives it back by bpf_sk_release. */
INLINE struct bpf_sock *socket_of(struct xdp_md *ctx, const struct flow *flow)
{
	struct tuple_v4 four = {};
	struct tuple_v6 six = {};

	if (flow->is_v6) {
		__builtin_memcpy(six.saddr, flow->source, 16);
		__builtin_memcpy(six.daddr, flow->dest, 16);
		six.sport = flow->source_port;
		six.dport = flow->dest_port;
		/* The network namespace of the device: all negative numbers. */
		return bpf_skc_lookup_tcp(ctx, &six, sizeof(six), -1ull, 0);
	}
	four.saddr = flow->source[0];
	four.daddr = flow->dest[0];
	four.sport = flow->source_port;
	four.dport = flow->dest_port;
	return bpf_skc_lookup_tcp(ctx, &four, sizeof(four), -1ull, 0);
}

#endif
