/* The clock of the NAT: ends sessions whose time is over, and removes mappings and users that have none. */
#ifndef SALLYPORT_NAT_CLOCK_H
#define SALLYPORT_NAT_CLOCK_H

#include "nat.h"

/* Ends a session whose time is over. One whose outside address is no longer the NAT's is over now. */
static long nat_sweep(void *map, struct nat_key *key, struct nat_session *session, __u64 *now)
{
	/* The memory of the key may have another owner as soon as the entry is gone. */
	struct nat_key own = *key;

	(void)map;
	if (session->expires > *now && !nat_is_external(session->external.address))
		session->expires = *now;
	if (session->expires + NAT_GRACE_NS <= *now)
		nat_end_session(&own, session);
	return 0;
}

/* Looks at the number of sessions of an entry. Returns whether the entry is to be removed now. */
INLINE int nat_is_gone(__s32 *sessions)
{
	__u32 zero = 0;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);

	if (*(volatile __s32 *)sessions == NAT_GOING)
		return __sync_val_compare_and_swap(sessions, NAT_GOING, NAT_GONE) == NAT_GOING;
	if (__sync_val_compare_and_swap(sessions, 0, NAT_GOING) == 0 && state)
		state->has_idle = 1;
	return 0;
}

/* Removes a mapping without sessions. */
static long nat_sweep_mapping(void *map, struct nat_end *inside, struct nat_mapping *mapping, void *context)
{
	struct nat_end external, key;

	(void)context;
	if (mapping->is_forward || !nat_is_gone(&mapping->sessions))
		return 0;
	external = mapping->external;
	key = *inside;
	bpf_map_delete_elem(&nat_externals, &external);
	bpf_map_delete_elem(map, &key);
	return 0;
}

/* Removes a user without sessions. */
static long nat_sweep_user(void *map, struct nat_user *user, __s32 *sessions, void *context)
{
	struct nat_user key = *user;

	(void)context;
	if (nat_is_gone(sessions))
		bpf_map_delete_elem(map, &key);
	return 0;
}

static int nat_tick(void *map, __u32 *key, struct nat_timer *timer)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct nat_state *state = bpf_map_lookup_elem(&nat_state, &zero);

	(void)map;
	(void)key;
	bpf_for_each_map_elem(&nat_sessions, nat_sweep, &now, 0);
	if (state && state->has_idle) {
		state->has_idle = 0;
		bpf_for_each_map_elem(&nat_mappings, nat_sweep_mapping, (void *)0, 0);
		bpf_for_each_map_elem(&nat_users, nat_sweep_user, (void *)0, 0);
	}
	bpf_timer_start(&timer->timer, NAT_TICK_NS, 0);
	return 0;
}

/* Starts the clock of the sessions, or hands it from the program before to this one. */
SEC("xdp")
int sallyport_nat_clock(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct nat_timer *timer = bpf_map_lookup_elem(&nat_timers, &zero);

	(void)ctx;
	if (!timer)
		return XDP_ABORTED;
	/* Fails if it is there already. */
	bpf_timer_init(&timer->timer, &nat_timers, 1);
	if (bpf_timer_set_callback(&timer->timer, nat_tick) || bpf_timer_start(&timer->timer, NAT_TICK_NS, 0))
		return XDP_ABORTED;
	return XDP_PASS;
}

#endif
