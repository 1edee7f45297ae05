/*
 * SYN cookies at an edge: above a number of SYNs a second, XDP answers, and no SYN reaches the kernel's queues.
 *
 * The kernel makes the cookie for its listening socket, and takes the client's ACK by itself, if net.ipv4.tcp_syncookies
 * is 2. The answer goes straight to the client. It offers no scale of windows and no timestamps: what the kernel would
 * read of them is a secret of its own.
 */
#ifndef SALLYPORT_SYNCOOKIE_H
#define SALLYPORT_SYNCOOKIE_H

#include "bucket.h"
#include "socket.h"
#include "tunnel.h"

/* The longest header of TCP. */
#define TCP_MOST 60
/* The answer: a header of TCP, and the option of the largest segment. */
#define ANSWER_TCP 24
/* What the client may send before it hears of the server: below the first window of the kernel. */
#define ANSWER_WINDOW 29200
#define OPTION_SEGMENT 0x0204
/* The kernel makes no cookie now: there is no flood for it, or its server accepts nothing. */
#define NO_COOKIE (-2)

struct cookie_settings {
	/* SYNs that the kernel gets; none are limited where the interval is 0. */
	struct rate rate;
	/* SYNs a second, and what net.ipv4.tcp_syncookies was before: io/xdp reads them back. */
	__u32 per_second;
	__u32 before;
};
_Static_assert(sizeof(struct cookie_settings) == 24, "io/xdp writes 24 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_settings);
} cookie_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cookie_bucket SEC(".maps");

static long long (*const bpf_tcp_gen_syncookie)(void *socket, void *ip, __u32 ip_length, void *tcp,
						__u32 tcp_length) = (void *)110;

struct tcp_header {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack;
	__u8 words;
	__u8 flags;
	__be16 window;
	__u16 check;
	__u16 urgent;
	/* The option of the largest segment. */
	__be16 option;
	__be16 segment;
} __attribute__((packed));
_Static_assert(sizeof(struct tcp_header) == ANSWER_TCP, "an answer");

/* The kernel's cookie for a SYN, with the largest segment above it; an error is negative. Nothing is changed. */
NOINLINE long long cookie_of(struct xdp_md *ctx, struct flow *flow)
{
	__u8 tcp[TCP_MOST] = {};
	struct bpf_sock *socket;
	__u32 length;
	long long cookie = NO_COOKIE;

	if (!flow || bpf_xdp_load_bytes(ctx, flow->payload, tcp, 20))
		return NO_COOKIE;
	length = (tcp[12] >> 4) * 4;
	if (length < 20 || length > TCP_MOST || bpf_xdp_load_bytes(ctx, flow->payload, tcp, length))
		return -22;
	socket = socket_of(ctx, flow);
	if (!socket)
		return NO_COOKIE;
	if (socket->state == TCP_LISTEN) {
		if (flow->is_v6) {
			struct ipv6 *ip = place(ctx, AT_IP);

			if ((void *)(ip + 1) <= limit(ctx))
				cookie = bpf_tcp_gen_syncookie(socket, ip, sizeof(*ip), tcp, length);
		} else {
			struct ipv4 *ip = place(ctx, AT_IP);

			if ((void *)(ip + 1) <= limit(ctx))
				cookie = bpf_tcp_gen_syncookie(socket, ip, sizeof(*ip), tcp, length);
		}
	}
	bpf_sk_release(socket);
	return cookie;
}

/* The way to the client. An edge that does not forward has none: the one that has sent the frame knows it. */
INLINE long cookie_way(struct xdp_md *ctx, const struct flow *flow, struct bpf_fib_lookup *fib)
{
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->family = flow->is_v6 ? AF_INET6 : AF_INET;
	fib->l4_protocol = PROTO_TCP;
	fib->sport = flow->dest_port;
	fib->dport = flow->source_port;
	fib->ifindex = ctx->ingress_ifindex;
	__builtin_memcpy(fib->ipv6_src, flow->dest, 16);
	__builtin_memcpy(fib->ipv6_dst, flow->source, 16);
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

INLINE void cookie_write(struct tcp_header *tcp, const struct flow *flow, __u64 cookie, __be32 seq)
{
	__u32 sum = be16(PROTO_TCP) + be16(ANSWER_TCP);
	const __u16 *words = (const __u16 *)tcp;

	tcp->source = flow->dest_port;
	tcp->dest = flow->source_port;
	tcp->seq = be32((__u32)cookie);
	tcp->ack = be32(be32(seq) + 1);
	tcp->words = ANSWER_TCP / 4 << 4;
	tcp->flags = TCP_SYN | TCP_ACK;
	tcp->window = be16(ANSWER_WINDOW);
	tcp->check = 0;
	tcp->urgent = 0;
	tcp->option = be16(OPTION_SEGMENT);
	tcp->segment = be16((__u16)(cookie >> 32));
#pragma unroll
	for (int i = 0; i < ANSWER_TCP / 2; i++)
		sum += words[i];
	/* Words of no family are 0. */
#pragma unroll
	for (int i = 0; i < 4; i++) {
		sum += (flow->source[i] & 0xffff) + (flow->source[i] >> 16);
		sum += (flow->dest[i] & 0xffff) + (flow->dest[i] >> 16);
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	tcp->check = ~sum;
}

/* Makes the frame the answer to its SYN. */
NOINLINE int cookie_answer(struct xdp_md *ctx, const struct flow *flow, __u64 cookie)
{
	struct tcp_header *tcp;
	__u32 header;
	__be32 seq;

	if (!flow)
		return REASON_TRUNCATED;
	header = flow->is_v6 ? sizeof(struct ipv6) : sizeof(struct ipv4);
	if (bpf_xdp_load_bytes(ctx, flow->payload + 4, &seq, sizeof(seq)))
		return REASON_TRUNCATED;
	if (bpf_xdp_adjust_tail(ctx, (int)(AT_IP + header + ANSWER_TCP) - (int)bytes_of(ctx)))
		return REASON_NO_ROOM;
	if (flow->is_v6) {
		struct ipv6 *ip = place(ctx, AT_IP);

		tcp = (void *)(ip + 1);
		if ((void *)(tcp + 1) > limit(ctx))
			return REASON_TRUNCATED;
		ip->flow = be32(0x60000000);
		ip->payload = be16(ANSWER_TCP);
		ip->next = PROTO_TCP;
		ip->hops = TUNNEL_TTL;
		__builtin_memcpy(ip->source, flow->dest, 16);
		__builtin_memcpy(ip->dest, flow->source, 16);
		cookie_write(tcp, flow, cookie, seq);
	} else {
		struct ipv4 *ip = place(ctx, AT_IP);

		tcp = (void *)(ip + 1);
		if ((void *)(tcp + 1) > limit(ctx))
			return REASON_TRUNCATED;
		ip->version_ihl = 0x45;
		ip->tos = 0;
		ip->total = be16(sizeof(*ip) + ANSWER_TCP);
		ip->id = 0;
		ip->fragment = be16(0x4000);
		ip->ttl = TUNNEL_TTL;
		ip->proto = PROTO_TCP;
		ip->check = 0;
		ip->source = flow->dest[0];
		ip->dest = flow->source[0];
		ip->check = sum_of_v4(ip);
		cookie_write(tcp, flow, cookie, seq);
	}
	return REASON_COOKIE_SENT;
}

/* Answers a SYN, where the kernel has a cookie and a way. Otherwise the kernel gets the SYN. */
INLINE enum reason cookie_ask(struct xdp_md *ctx, struct flow *flow, struct bpf_fib_lookup *fib)
{
	long long cookie = cookie_of(ctx, flow);
	struct ethernet *ethernet;
	enum reason reason;
	long way;

	if (cookie == NO_COOKIE)
		return REASON_FORWARDED;
	if (cookie < 0)
		return REASON_COOKIE;
	way = cookie_way(ctx, flow, fib);
	if (way == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		ethernet = place(ctx, 0);
		if ((void *)(ethernet + 1) > limit(ctx))
			return REASON_TRUNCATED;
		__builtin_memcpy(fib->dmac, ethernet->source, 6);
		__builtin_memcpy(fib->smac, ethernet->dest, 6);
		fib->ifindex = ctx->ingress_ifindex;
	} else if (way != BPF_FIB_LKUP_RET_SUCCESS) {
		return REASON_FORWARDED;
	}
	reason = cookie_answer(ctx, flow, cookie);
	if (reason == REASON_COOKIE_SENT && address_frame(ctx, fib) != REASON_FORWARDED)
		return REASON_TRUNCATED;
	return reason;
}

/* At an edge, for each packet inside a tunnel: REASON_COOKIE_SENT if the frame is now the answer, and `fib` its way. */
INLINE enum reason shield_cookie(struct xdp_md *ctx, struct flow *flow, struct bpf_fib_lookup *fib)
{
	__u32 key = 0;
	struct cookie_settings *settings;
	__u64 *bucket;

	if (LIKELY(flow->protocol != PROTO_TCP || (flow->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN))
		return REASON_FORWARDED;
	settings = bpf_map_lookup_elem(&cookie_set, &key);
	bucket = bpf_map_lookup_elem(&cookie_bucket, &key);
	if (!settings || !bucket || !settings->rate.interval || flow->is_error || flow->is_fragment)
		return REASON_FORWARDED;
	if (bucket_take(bucket, &settings->rate, bpf_ktime_get_coarse_ns(), 0))
		return REASON_FORWARDED;
	return cookie_ask(ctx, flow, fib);
}

#endif
