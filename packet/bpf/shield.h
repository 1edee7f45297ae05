/* What protects services from floods: the places where programs ask. Both admit everything yet. */
#ifndef SALLYPORT_SHIELD_H
#define SALLYPORT_SHIELD_H

#include "flow.h"

/* At a balancer, for each packet to a virtual address: REASON_LIMIT for a source that has sent too much. */
INLINE enum reason shield_limit(struct xdp_md *ctx, const struct flow *flow)
{
	(void)ctx;
	(void)flow;
	return REASON_FORWARDED;
}

/* At an edge, for each packet inside a tunnel: REASON_COOKIE for one that only an answer to a cookie may follow. */
INLINE enum reason shield_cookie(struct xdp_md *ctx, const struct flow *flow)
{
	(void)ctx;
	(void)flow;
	return REASON_FORWARDED;
}

#endif
