/*
 * NAT44 as two steps of the router: `nat_before` the lookup finds the new destination, `nat_after` it writes.
 *
 * core/packet/src/nat is the model, and tests compare the two. An end of a flow is an address with a port; the port of
 * an echo is its identifier. A mapping gives an inside end its outside one. A session is a mapping and a peer. The
 * settings are constants of the loaded program, so a router without NAT has none of this code.
 */
#ifndef SALLYPORT_NAT_H
#define SALLYPORT_NAT_H

#include "fragment.h"

INLINE int nat_is_inside(__be32 address)
{
#pragma unroll
	for (__u32 i = 0; i < NAT_MAX_INSIDE; i++)
		if (i < nat.insides && (address & nat.inside[i].mask) == nat.inside[i].address)
			return 1;
	return 0;
}

INLINE int nat_is_external(__be32 address)
{
	__u32 number = be32(address);

	if (number < nat.low || number > nat.high)
		return 0;
	return nat.low == nat.high || bpf_map_lookup_elem(&nat_addresses, &address);
}

/* The key of a session. The identifier of an echo belongs to one side alone. */
INLINE void nat_key_of(struct nat_key *key, const struct nat_end *inside, const struct nat_end *peer)
{
	key->inside = *inside;
	key->peer = peer->address;
	key->peer_port = peer->protocol == PROTO_ICMP ? 0 : peer->port;
	key->zero = 0;
}

INLINE struct nat_session *nat_live(const struct nat_key *key, __u64 now)
{
	struct nat_session *session = bpf_map_lookup_elem(&nat_sessions, key);

	return session && session->expires > now ? session : (void *)0;
}

INLINE __u32 nat_mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b1u;
	return hash ^ hash >> 15;
}

INLINE __u32 nat_finish(__u32 hash)
{
	hash = (hash ^ hash >> 16) * 0x85ebca6bu;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
	return hash ^ hash >> 16;
}

/* Writes a line of the log, if somebody reads it. */
NOINLINE int nat_write_log(struct nat_key *key, struct nat_session *session, __u32 is_end)
{
	__u32 zero = 0;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);
	__u64 *lease = bpf_map_lookup_elem(&nat_lease, &zero);
	struct nat_record *record;
	__u64 now;

	if (!state || !lease || !*lease)
		return 0;
	now = bpf_ktime_get_ns();
	if (now > *lease) {
		*lease = 0;
		return 0;
	}
	record = bpf_ringbuf_reserve(&nat_log, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&state->lost, 1);
		return 0;
	}
	record->time = now;
	record->began = session->began;
	record->inside = key->inside;
	record->external = session->external;
	record->peer = key->peer;
	record->peer_port = key->peer_port;
	record->is_end = is_end;
	record->is_outbound = session->is_outbound;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/*
 * Counts a session into a mapping or a user; returns how many there were, or -1 if the entry goes at this moment.
 *
 * An entry without sessions is marked by one look of the clock, and removed by the next one. So nobody counts into
 * memory that has another owner: whoever has seen the entry unmarked is done before the next look.
 */
INLINE __s32 nat_take(__s32 *sessions)
{
	__s32 seen = *(volatile __s32 *)sessions;

	if (seen == NAT_GOING)
		return __sync_val_compare_and_swap(sessions, NAT_GOING, 1) == NAT_GOING ? 0 : -1;
	if (seen < 0)
		return -1;
	seen = __sync_fetch_and_add(sessions, 1);
	if (seen >= 0)
		return seen;
	__sync_fetch_and_add(sessions, -1);
	return -1;
}

/* Counts a session out of a mapping or a user. The clock removes what has none. */
INLINE void nat_give(__s32 *sessions)
{
	__u32 zero = 0;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);

	if (__sync_fetch_and_add(sessions, -1) <= 1 && state)
		state->has_idle = 1;
}

/* Counts a session of a user and of the NAT out. */
INLINE void nat_leave(__be32 address, __u32 is_of_stranger)
{
	struct nat_user user = { .address = address, .is_of_stranger = is_of_stranger };
	__u32 zero = 0;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);
	__s32 *sessions = bpf_map_lookup_elem(&nat_users, &user);

	if (state)
		__sync_fetch_and_add(&state->sessions, -1);
	if (sessions)
		nat_give(sessions);
}

/* Takes a session from its mapping. */
INLINE void nat_unmap(struct nat_end *inside)
{
	struct nat_mapping *mapping = bpf_map_lookup_elem(&nat_mappings, inside);

	if (mapping)
		nat_give(&mapping->sessions);
}

/* Ends a session whose time is over for long enough. */
NOINLINE int nat_end_session(struct nat_key *key, struct nat_session *found)
{
	__u64 expires = found->expires;
	__u32 is_of_stranger = found->is_of_stranger;

	/* One of several processors ends it. Nobody ends what another one has begun anew. */
	if (!expires || expires + NAT_GRACE_NS > bpf_ktime_get_ns() ||
	    __sync_val_compare_and_swap(&found->expires, expires, 0) != expires)
		return 0;
	nat_write_log(key, found, 1);
	if (bpf_map_delete_elem(&nat_sessions, key))
		return 0;
	nat_leave(key->inside.address, is_of_stranger);
	nat_unmap(&key->inside);
	return 0;
}

/* Finds a free outside end: first the port of the inside, then ports from a hash on. */
NOINLINE int nat_claim(struct nat_end *inside, struct nat_end *external)
{
	__u32 bits = be32(inside->address), port = be16(inside->port);
	__u32 count = nat.last_port + 1 - nat.first_port, pool = nat.pool, hash, index;
	__be32 *address;

	if (!pool || !count)
		return 0;
	index = nat_finish(nat_mix(nat.seed, bits)) % pool;
	address = bpf_map_lookup_elem(&nat_pool, &index);
	if (!address)
		return 0;
	*external = *inside;
	external->address = *address;
	if (port >= nat.first_port && port <= nat.last_port &&
	    !bpf_map_update_elem(&nat_externals, external, inside, BPF_NOEXIST))
		return 1;
	hash = nat_finish(nat_mix(nat_mix(nat.seed, bits), port << 8 | inside->protocol)) % count;
	for (__u32 i = 1; i <= NAT_PORT_TRIES; i++) {
		if (i > count)
			break;
		external->port = be16((__u16)(nat.first_port + (hash + i) % count));
		if (!bpf_map_update_elem(&nat_externals, external, inside, BPF_NOEXIST))
			return 1;
	}
	return 0;
}

/* Finds the mapping of a new session, or makes it. */
INLINE enum reason nat_map(struct nat_key *key, __u32 flags, struct nat_session *session)
{
	struct nat_mapping *mapping = bpf_map_lookup_elem(&nat_mappings, &key->inside);
	__u32 zero = 0;
	struct nat_made *space = bpf_map_lookup_elem(&nat_space, &zero);

	if (mapping) {
		/* A mapping that goes at this moment, or whose address was taken away: the next packet finds a new one. */
		if (!nat_is_external(mapping->external.address) || nat_take(&mapping->sessions) < 0)
			return REASON_NAT_NO_SESSION;
		session->external = mapping->external;
		return REASON_FORWARDED;
	}
	/* The kernel has seen the beginning of this connection, if anybody has. */
	if (key->inside.protocol == PROTO_TCP && !(flags & TCP_SYN))
		return REASON_NAT_NO_MAPPING;
	if (!space || !nat_claim(&key->inside, &session->external))
		return REASON_NAT_PORTS;
	__builtin_memset(&space->mapping, 0, sizeof(space->mapping));
	space->mapping.external = session->external;
	space->mapping.sessions = 1;
	if (bpf_map_update_elem(&nat_mappings, &key->inside, &space->mapping, BPF_NOEXIST)) {
		bpf_map_delete_elem(&nat_externals, &session->external);
		return REASON_NAT_NO_SESSION;
	}
	return REASON_FORWARDED;
}

/* What a stranger begins is not known to be wanted before the inside answers. */
INLINE __u32 nat_first_state(const struct nat_key *key, __u32 is_outbound)
{
	return key->inside.protocol == PROTO_TCP || !is_outbound ? NAT_OPENING : NAT_DATAGRAMS;
}

/* Begins a session anew whose time is over, and which is not removed yet. It stays in the numbers. */
NOINLINE int nat_begin_again(struct nat_key *key, struct nat_session *session,
						     __u32 is_outbound)
{
	__u64 now = bpf_ktime_get_ns(), expires = session->expires;

	if (!nat_is_external(session->external.address))
		return REASON_NAT_NO_SESSION;
	if (!expires || __sync_val_compare_and_swap(&session->expires, expires, now + NAT_SLACK_NS) != expires)
		return REASON_FORWARDED;
	nat_write_log(key, session, 1);
	session->began = now;
	session->state = nat_first_state(key, is_outbound);
	session->is_outbound = is_outbound;
	session->tcp.known = 0;
	nat_write_log(key, session, 0);
	return REASON_FORWARDED;
}

/* Begins a session, within the bounds of the user and of the NAT. */
NOINLINE int nat_begin(struct nat_key *key, __u32 flags, __u32 is_outbound)
{
	__u32 zero = 0;
	struct nat_user user_key = { .address = key->inside.address, .is_of_stranger = !is_outbound };
	__s32 none = 0, *user, sessions;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);
	struct nat_session *old = bpf_map_lookup_elem(&nat_sessions, key);
	struct nat_made *space = bpf_map_lookup_elem(&nat_space, &zero);
	struct nat_session *session;
	enum reason reason;

	if (!state || !space)
		return REASON_NAT_SESSIONS;
	session = &space->session;
	if (old) {
		if (old->expires && old->expires + NAT_GRACE_NS > bpf_ktime_get_ns())
			return old->expires > bpf_ktime_get_coarse_ns() ? REASON_FORWARDED
									: nat_begin_again(key, old, is_outbound);
		nat_end_session(key, old);
	}
	/* First the bound of all: a user without a session has no entry, so strangers cannot fill the table of users. */
	if (__sync_fetch_and_add(&state->sessions, 1) >= nat.max_sessions) {
		__sync_fetch_and_add(&state->sessions, -1);
		return REASON_NAT_SESSIONS;
	}
	user = bpf_map_lookup_elem(&nat_users, &user_key);
	if (!user) {
		bpf_map_update_elem(&nat_users, &user_key, &none, BPF_NOEXIST);
		user = bpf_map_lookup_elem(&nat_users, &user_key);
	}
	sessions = user ? nat_take(user) : -1;
	if (sessions < 0) {
		__sync_fetch_and_add(&state->sessions, -1);
		return REASON_NAT_SESSIONS;
	}
	if (sessions >= (__s32)nat.max_user_sessions) {
		nat_leave(user_key.address, user_key.is_of_stranger);
		return REASON_NAT_SESSIONS;
	}
	__builtin_memset(session, 0, sizeof(*session));
	session->is_outbound = is_outbound;
	reason = nat_map(key, flags, session);
	if (reason != REASON_FORWARDED) {
		nat_leave(user_key.address, user_key.is_of_stranger);
		return reason;
	}
	session->is_of_stranger = user_key.is_of_stranger;
	session->state = nat_first_state(key, is_outbound);
	session->began = bpf_ktime_get_ns();
	session->expires = session->began + NAT_SLACK_NS;
	if (bpf_map_update_elem(&nat_sessions, key, session, BPF_NOEXIST)) {
		nat_leave(user_key.address, user_key.is_of_stranger);
		nat_unmap(&key->inside);
		/* Another processor may have begun it. */
		return bpf_map_lookup_elem(&nat_sessions, key) ? REASON_FORWARDED : REASON_NAT_SESSIONS;
	}
	nat_write_log(key, session, 0);
	return REASON_FORWARDED;
}

/* The state of a connection after a packet. */
NOINLINE int nat_move(struct nat_session *session, struct segment *segment, int by_initiator)
{
	int is_syn = segment->flags & TCP_SYN;

	if (session->state == NAT_CLOSING && is_syn && by_initiator) {
		session->tcp.known = 0;
		session->state = NAT_OPENING;
	}
	if (tcp_count_in(&session->tcp, !by_initiator, segment))
		session->state = NAT_CLOSING;
	else if (segment->flags & TCP_RST)
		return 0;
	else if (session->state == NAT_OPENING && !by_initiator)
		session->state = NAT_ANSWERED;
	else if (session->state == NAT_ANSWERED && by_initiator && !is_syn)
		session->state = NAT_ESTABLISHED;
	return 0;
}

/* How long a session lives after a packet. */
INLINE __u64 nat_lifetime(const struct nat_session *session, __u8 protocol)
{
	switch (session->state) {
	case NAT_DATAGRAMS:
		return protocol == PROTO_ICMP ? nat.lifetimes[NAT_ICMP_NS] : nat.lifetimes[NAT_UDP_NS];
	case NAT_ESTABLISHED:
		return nat.lifetimes[NAT_ESTABLISHED_NS];
	case NAT_CLOSING:
		return nat.lifetimes[NAT_CLOSING_NS];
	default:
		return session->is_outbound ? nat.lifetimes[NAT_TRANSITORY_NS] : nat.lifetimes[NAT_HALF_OPEN_NS];
	}
}

/* Counts a packet into its session, which begins if it is not there. `external` becomes the outside end. */
NOINLINE int nat_count_in(struct nat_key *key, struct segment *segment, __u32 is_outbound,
						  struct nat_end *external)
{
	__u64 now = bpf_ktime_get_coarse_ns(), expires;
	struct nat_session *session = nat_live(key, now);

	if (!session) {
		int reason = nat_begin(key, segment->flags, is_outbound);

		if (reason != REASON_FORWARDED)
			return reason;
		session = nat_live(key, now);
		if (!session)
			return REASON_NAT_NO_SESSION;
	}
	if (key->inside.protocol == PROTO_TCP)
		nat_move(session, segment, is_outbound == session->is_outbound);
	else if (session->state == NAT_OPENING && is_outbound != session->is_outbound)
		session->state = NAT_DATAGRAMS;
	expires = now + nat_lifetime(session, key->inside.protocol);
	session->expires = expires;
	if (expires > session->mapped_until) {
		struct nat_mapping *mapping = bpf_map_lookup_elem(&nat_mappings, &key->inside);

		session->mapped_until = expires + NAT_SLACK_NS;
		if (mapping && mapping->expires < session->mapped_until)
			mapping->expires = session->mapped_until;
	}
	*external = session->external;
	return REASON_FORWARDED;
}

/* Reads the ends of the packet inside an ICMP error. */
INLINE enum reason nat_read_quote(struct xdp_md *ctx, struct ipv4 *ip, __u32 length, struct translation *t)
{
	struct ipv4 *quote = (void *)(ip + 1) + 8;
	struct ports *ports;
	__u32 header;

	if (length < 8 + sizeof(*quote) || (void *)(quote + 1) > end(ctx))
		return REASON_MALFORMED;
	header = (quote->version_ihl & 15) * 4u;
	if (quote->version_ihl >> 4 != 4 || header < sizeof(*quote) || be16(quote->total) < header)
		return REASON_MALFORMED;
	if (quote->proto != PROTO_TCP && quote->proto != PROTO_UDP && quote->proto != PROTO_ICMP)
		return REASON_NAT_PROTOCOL;
	if (quote->fragment & be16(0x1fff))
		return REASON_NAT_PROTOCOL;
	ports = (void *)quote + header;
	if (length < 8 + header + 8 || (void *)(ports + 2) > end(ctx))
		return REASON_MALFORMED;
	t->is_error = 1;
	t->source.address = quote->source;
	t->dest.address = quote->dest;
	t->source.protocol = quote->proto;
	t->dest.protocol = quote->proto;
	if (quote->proto != PROTO_ICMP) {
		t->source.port = ports[0].source;
		t->dest.port = ports[0].dest;
	} else if ((ports[0].source & be16(0xff00)) == be16(0x0800)) {
		t->source.port = ports[1].source;
	} else if (!(ports[0].source & be16(0xff00))) {
		t->dest.port = ports[1].source;
	}
	return REASON_FORWARDED;
}

/* Reads the ends of the packet. */
INLINE enum reason nat_read(struct xdp_md *ctx, struct ipv4 *ip, struct translation *t)
{
	__u32 length = be16(ip->total) - sizeof(*ip);
	struct ports *ports = (void *)(ip + 1);
	int is_first = (ip->fragment & be16(0x2000)) != 0;

	if (ip->fragment & be16(0x1fff))
		return REASON_FRAGMENT;
	if (ip->proto != PROTO_TCP && ip->proto != PROTO_UDP && ip->proto != PROTO_ICMP)
		return REASON_NAT_PROTOCOL;
	if (length < 8 || (void *)(ports + 2) > end(ctx))
		return REASON_TRUNCATED;
	t->source.address = ip->source;
	t->source.protocol = ip->proto;
	t->dest.address = ip->dest;
	t->dest.protocol = ip->proto;
	t->may_begin = 1;
	if (ip->proto == PROTO_TCP) {
		__u8 *bytes = (void *)ports;

		if (length < 20 || (void *)(bytes + 20) > end(ctx))
			return REASON_TRUNCATED;
		if ((bytes[12] >> 4) * 4u < 20)
			return REASON_MALFORMED;
		if ((bytes[12] >> 4) * 4u > length)
			return REASON_TRUNCATED;
		tcp_read(bytes, length, &t->segment);
		/* The answer to a beginning begins nothing: that one may be over. */
		t->may_begin = !(t->segment.flags & TCP_RST) &&
			       (t->segment.flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK);
	} else if (ip->proto == PROTO_UDP) {
		__u32 said = be16(ports[1].source);

		/* The first of several fragments has only a part of the datagram. */
		if (said < 8 || (!is_first && said > length))
			return REASON_MALFORMED;
	} else {
		__u32 kind = be16(ports[0].source) >> 8;

		if (kind == 3 || kind == 4 || kind == 11 || kind == 12)
			return is_first ? REASON_MALFORMED : nat_read_quote(ctx, ip, length, t);
		if (kind == 8)
			t->source.port = ports[1].source;
		else if (kind == 0)
			t->dest.port = ports[1].source;
		else
			return REASON_NAT_PROTOCOL;
		t->may_begin = kind == 8;
		return REASON_FORWARDED;
	}
	t->source.port = ports[0].source;
	t->dest.port = ports[0].dest;
	return REASON_FORWARDED;
}

/* Whether a packet from outside may go to the inside end, by a session or as the beginning of one. */
NOINLINE int nat_admit(struct translation *t, struct nat_end *peer)
{
	struct nat_key key;
	struct nat_mapping *mapping;

	nat_key_of(&key, &t->new_dest, peer);
	if (nat_live(&key, bpf_ktime_get_coarse_ns()))
		return REASON_FORWARDED;
	if (t->is_error)
		return REASON_NAT_NO_SESSION;
	mapping = bpf_map_lookup_elem(&nat_mappings, &t->new_dest);
	if (!(nat.is_open || (mapping && mapping->is_forward)) || t->new_dest.protocol == PROTO_ICMP)
		return REASON_NAT_FILTERED;
	return t->may_begin ? REASON_FORWARDED : REASON_NAT_NO_SESSION;
}

/* Finds the inside end of an outside one, whose mapping lives. */
NOINLINE int nat_find_inside(struct nat_end *external, struct nat_end *inside)
{
	struct nat_end *found = bpf_map_lookup_elem(&nat_externals, external);
	struct nat_mapping *mapping;

	if (!found)
		return 0;
	*inside = *found;
	mapping = bpf_map_lookup_elem(&nat_mappings, inside);
	/* The memory of an entry that was removed may be that of another one: only a mapping that leads back counts. */
	return mapping && mapping->external.address == external->address && mapping->external.port == external->port &&
	       (mapping->is_forward || mapping->expires > bpf_ktime_get_coarse_ns());
}

/* An ICMP error of the inside: the session of the packet inside has the new source. */
NOINLINE int nat_find_error(struct translation *t)
{
	struct nat_key key;
	struct nat_session *session;

	nat_key_of(&key, &t->dest, &t->source);
	session = nat_live(&key, bpf_ktime_get_coarse_ns());
	if (!session)
		return REASON_NAT_NO_SESSION;
	t->new_source = session->external;
	return REASON_FORWARDED;
}

/* The tables of this program. */
INLINE enum reason nat_before_xdp(struct xdp_md *ctx, struct ipv4 *ip, struct translation *t, int leaves,
				  int to_external)
{
	enum reason reason = nat_read(ctx, ip, t);

	if (reason != REASON_FORWARDED)
		return reason;
	if (t->is_error && leaves) {
		reason = nat_find_error(t);
		if (reason != REASON_FORWARDED)
			return reason;
	}
	if (to_external) {
		if (!nat_find_inside(t->is_error ? &t->source : &t->dest, &t->new_dest))
			return REASON_NAT_NO_MAPPING;
		if (!leaves || t->is_error) {
			struct nat_end *peer = !t->is_error ? &t->source : leaves ? &t->new_source : &t->dest;

			reason = nat_admit(t, peer);
			if (reason != REASON_FORWARDED)
				return reason;
		}
	}
	t->does_source = leaves;
	t->does_dest = to_external;
	return REASON_FORWARDED;
}

#include "conntrack.h"

/* A fragment after the first: it follows the first, if that was translated the same way. Others are for the kernel. */
INLINE enum reason nat_recall(struct translation *t, int leaves, int to_external)
{
	const struct fragment_way *way = fragment_recall();

	if (!way || way->does_source != leaves || way->does_dest != to_external)
		return REASON_FRAGMENT;
	t->is_later = 1;
	t->does_source = leaves;
	t->does_dest = to_external;
	t->new_source.address = way->source;
	t->new_dest.address = way->dest;
	return REASON_FORWARDED;
}

/* Before the lookup: whether the NAT has to do with the packet, and its new destination. Nothing is changed yet. */
GLOBAL int nat_before(struct xdp_md *ctx, struct packet *packet, struct bpf_fib_lookup *fib, struct translation *t)
{
	struct ipv4 *ip;
	int leaves, to_external;
	enum reason reason;

	if (!packet || !fib || !t || nat.engine == NAT_OFF || packet->is_v6)
		return REASON_FORWARDED;
	ip = at(ctx, packet->offset & 31);
	if ((void *)(ip + 1) > end(ctx))
		return REASON_FORWARDED;
	/* The sources that the NAT writes are of nobody outside: a stranger would be taken for a hairpin. */
	if (nat_is_external(ip->source))
		return REASON_MARTIAN;
	to_external = nat_is_external(ip->dest);
	leaves = nat_is_inside(ip->source) && (to_external || !nat_is_inside(ip->dest));
	if (!to_external && !leaves)
		return REASON_FORWARDED;
	if (nat.engine == NAT_CONNTRACK)
		reason = packet->is_fragment ? REASON_FRAGMENT : nat_before_conntrack(ctx, ip, t);
	else if (packet->fragment == FRAGMENT_LATER)
		reason = nat_recall(t, leaves, to_external);
	else
		reason = nat_before_xdp(ctx, ip, t, leaves, to_external);
	if (reason == REASON_FORWARDED && t->does_dest) {
		fib->ipv4_dst = t->new_dest.address;
		if (!t->is_error && fib->dport)
			fib->dport = t->new_dest.port;
	}
	return reason;
}

/* The change of a sum when two words replace two others (RFC 1624). */
INLINE __u32 nat_change(__u32 old, __u32 new)
{
	return (~old & 0xffff) + (~old >> 16) + (new & 0xffff) + (new >> 16);
}

INLINE __u16 nat_fix(__u16 check, __u32 change)
{
	__u32 sum = (__u16)~check + change;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Writes the addresses of a header. Returns the change of the addresses; `whole` adds the change of the sum. */
INLINE __u32 nat_write_header(struct ipv4 *ip, __be32 source, __be32 dest, __u32 *whole)
{
	__u32 change = nat_change(ip->source, source) + nat_change(ip->dest, dest);
	__u16 old = ip->check;

	ip->source = source;
	ip->dest = dest;
	ip->check = nat_fix(old, change);
	*whole = change + nat_change(old, ip->check);
	return change;
}

/*
 * Writes the ports behind a header, and the sum, of so many bytes. Returns the change of both. A quote may end before the
 * sum; what is behind it in the frame is no part of the packet.
 */
INLINE __u32 nat_write_ports(struct xdp_md *ctx, void *start, __u32 bytes, __u8 protocol, __be16 source, __be16 dest,
			     __u32 addresses)
{
	struct ports *ports = start;
	__u32 change;
	__u16 *check, old;

	if ((void *)(ports + 2) > end(ctx))
		return 0;
	if (protocol == PROTO_ICMP) {
		/* One of the two ends has the identifier. */
		__be16 identifier = source | dest;

		change = nat_change(ports[1].source, identifier);
		ports[1].source = identifier;
		check = start + 2;
		old = *check;
		*check = nat_fix(old, change);
		return change + nat_change(old, *check);
	}
	change = nat_change(ports->source, source) + nat_change(ports->dest, dest);
	ports->source = source;
	ports->dest = dest;
	check = start + (protocol == PROTO_TCP ? 16 : 6);
	if ((protocol == PROTO_TCP && bytes < 18) || (void *)(check + 1) > end(ctx))
		return change;
	old = *check;
	/* UDP without a sum stays so. */
	if (protocol == PROTO_UDP && !old)
		return change;
	*check = nat_fix(old, change + addresses);
	if (protocol == PROTO_UDP && !*check)
		*check = 0xffff;
	return change + nat_change(old, *check);
}

/* Writes the new ends into an ICMP error, and into the packet inside. */
NOINLINE int nat_write_error(struct xdp_md *ctx, __u32 offset, struct translation *t)
{
	struct ipv4 *ip = at(ctx, offset & 31), *quote = (void *)(ip + 1) + 8;
	__u32 addresses, change, header, unused;
	__u16 *check = (void *)(ip + 1) + 2;
	struct nat_end source = t->does_dest ? t->new_dest : t->source;
	struct nat_end dest = t->does_source ? t->new_source : t->dest;

	if ((void *)(quote + 1) > end(ctx))
		return REASON_TRUNCATED;
	nat_write_header(ip, t->does_source ? dest.address : ip->source, t->does_dest ? source.address : ip->dest,
			 &unused);
	header = (quote->version_ihl & 15) * 4u;
	addresses = nat_write_header(quote, source.address, dest.address, &change);
	change = (change & 0xffff) + (change >> 16);
	change += nat_write_ports(ctx, (void *)quote + header, be16(ip->total) - sizeof(*ip) - 8 - header, quote->proto,
				  source.port, dest.port, addresses);
	*check = nat_fix(*check, change);
	return REASON_FORWARDED;
}

/*
 * Says to the rules of the kernel that this program is done with a packet: they know nothing of its flow. The mark is a
 * source of the link that only this machine knows.
 */
INLINE void write_mark(struct xdp_md *ctx, const volatile __u8 *mark)
{
	struct ethernet *ethernet = at(ctx, 0);

	if ((void *)(ethernet + 1) > end(ctx))
		return;
#pragma unroll
	for (int i = 0; i < 6; i++)
		ethernet->source[i] = mark[i];
}

/* Whether a packet goes to the inside by a session of the tables. */
INLINE int nat_is_for_inside(const struct translation *t)
{
	return nat.engine == NAT_XDP && t->does_dest;
}

/* Whether the rules of the kernel send a packet for the inside there too: they have the forwarded ports. */
INLINE int nat_is_forwarded(const struct translation *t)
{
	struct nat_mapping *mapping = bpf_map_lookup_elem(&nat_mappings, &t->new_dest);

	return mapping && mapping->is_forward;
}

/* For `packet explain`: what `nat_after` would write. A session that is not there yet has no new source so far. */
INLINE void nat_explain(const struct translation *t, struct verdict *verdict)
{
	struct nat_session *session;
	struct nat_key key;

	verdict->has_new_source = t->does_source;
	verdict->has_new_dest = t->does_dest;
	verdict->new_dest = t->new_dest.address;
	verdict->new_dest_port = t->new_dest.port;
	verdict->new_source = t->new_source.address;
	verdict->new_source_port = t->new_source.port;
	if (nat.engine != NAT_XDP || !t->does_source || t->is_error || t->is_later)
		return;
	nat_key_of(&key, &t->source, &t->dest);
	session = nat_live(&key, bpf_ktime_get_coarse_ns());
	if (session) {
		verdict->new_source = session->external.address;
		verdict->new_source_port = session->external.port;
	}
}

/* After the lookup: counts the packet into its sessions, and writes the new ends. */
GLOBAL int nat_after(struct xdp_md *ctx, struct packet *packet, struct translation *t)
{
	struct ipv4 *ip;
	struct nat_key key;
	__u32 addresses, unused;
	enum reason reason;

	if (!packet || !t || nat.engine == NAT_OFF || (!t->does_source && !t->does_dest))
		return REASON_FORWARDED;
	if (t->is_error)
		return nat_write_error(ctx, packet->offset, t);
	if (nat.engine == NAT_XDP && t->does_source && !t->is_later) {
		if (!t->may_begin) {
			nat_key_of(&key, &t->source, &t->dest);
			if (!nat_live(&key, bpf_ktime_get_coarse_ns()))
				return REASON_NAT_NO_SESSION;
		}
		nat_key_of(&key, &t->source, &t->dest);
		reason = nat_count_in(&key, &t->segment, 1, &t->new_source);
		if (reason != REASON_FORWARDED)
			return reason;
	}
	if (nat.engine == NAT_XDP && t->does_dest && !t->is_later) {
		struct nat_end *peer = t->does_source ? &t->new_source : &t->source, external;

		if (t->does_source) {
			reason = nat_admit(t, peer);
			if (reason != REASON_FORWARDED)
				return reason;
		}
		nat_key_of(&key, &t->new_dest, peer);
		reason = nat_count_in(&key, &t->segment, 0, &external);
		if (reason != REASON_FORWARDED)
			return reason;
	}
	ip = at(ctx, packet->offset & 31);
	if ((void *)(ip + 1) > end(ctx))
		return REASON_TRUNCATED;
	if (t->is_later) {
		nat_write_header(ip, t->does_source ? t->new_source.address : ip->source,
				 t->does_dest ? t->new_dest.address : ip->dest, &unused);
		return REASON_FORWARDED;
	}
	if (!t->does_source)
		t->new_source = t->source;
	if (!t->does_dest)
		t->new_dest = t->dest;
	addresses = nat_write_header(ip, t->new_source.address, t->new_dest.address, &unused);
	nat_write_ports(ctx, ip + 1, be16(ip->total) - sizeof(*ip), ip->proto, t->new_source.port, t->new_dest.port, addresses);
	return REASON_FORWARDED;
}

#endif
