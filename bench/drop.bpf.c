// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Drops every packet: what a packet costs before anyone has done anything with it. */
__attribute__((section("xdp"), used)) int drop(void *ctx)
{
	return ctx ? 1 : 0;
}

__attribute__((section("license"), used)) const char terms[] = "GPL";
