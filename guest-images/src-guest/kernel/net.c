/* SPDX-License-Identifier: GPL-2.0-or-later
 * From system calls to the network driver, of which there is at most one. */
#include "net.h"

static struct net_device *eth0;

void register_netdev(struct net_device *dev)
{
	eth0 = dev;
	printk("%s: registered\n", dev->name);
}

void unregister_netdev(struct net_device *dev)
{
	printk("%s: unregistered\n", dev->name);
	eth0 = 0;
}

int net_open(void)
{
	if (!eth0 || eth0->up || eth0->open(eth0))
		return -1;
	eth0->up = 1;
	return 0;
}

/* `data` is the user's: reading it may fault, so it is copied before the driver sees it. */
int net_send(const void *data, u32 bytes)
{
	struct sk_buff *skb;

	if (!eth0 || !eth0->up || bytes > 1514)
		return -1;
	skb = kmalloc(sizeof(*skb) + bytes);
	if (!skb)
		return -1;
	skb->len = bytes;
	memcpy(skb->data, data, bytes);
	if (!eth0->hard_start_xmit(skb, eth0))
		return 0;
	kfree(skb);
	return -1;
}

int net_close(void)
{
	if (!eth0 || !eth0->up)
		return -1;
	eth0->up = 0;
	return eth0->stop(eth0);
}
