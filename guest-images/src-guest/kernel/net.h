/* SPDX-License-Identifier: GPL-2.0-or-later
 * Between the kernel and its network drivers. */
#ifndef NET_H
#define NET_H

#include "kernel.h"

struct sk_buff {
	u32 len;
	u8 data[];
};

struct net_device {
	const char *name;
	int (*open)(struct net_device *dev);
	int (*hard_start_xmit)(struct sk_buff *skb, struct net_device *dev); /* owns skb if it gives 0 */
	int (*stop)(struct net_device *dev);
	void *priv;
	int up;
};

/* What `module_init` and `module_exit` are to a loadable module. */
struct module_code {
	const char *name;
	const u8 *start, *end;
	void (*init)(void);
	void (*exit)(void);
};

extern const struct module_code vortex_module;

void register_netdev(struct net_device *dev);
void unregister_netdev(struct net_device *dev);

#endif
