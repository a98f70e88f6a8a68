/* SPDX-License-Identifier: GPL-2.0-or-later
 * The driver of a network card that is not there, in the shape of a loadable module: it lies in one
 * piece, the kernel enters it through what it registers, and it is listed among the modules. Frames
 * go to a ring from which the "card" takes them when the ring is full or the device is closed. */
#include "driver_trace.h"
#include "net.h"

#define TX_RING_SIZE 4

TRACE_HANDLE(vortex_trace, "3c59x", 8192, DTI_LEVEL_DEBUG, 0);

struct vortex_private {
	struct sk_buff *tx_ring[TX_RING_SIZE];
	u32 cur_tx, dirty_tx;
	u32 packets, bytes, sum;
};

#ifdef TRAPLINE_PLANTED
#define CONTROL_MAGIC 0x5ca1ab1e
#define CONTROL_VERSION 2

/* What a frame of the card's control protocol says: the magic number, the version, then options, each a type, a length and
 * its bytes, up to the type 0. Any other frame is refused. The mistake that is planted here: a name may be longer than its
 * place. */
PROBE_POINT int vortex_control(const u8 *frame, u32 len)
{
	u8 name[16];
	u32 magic, at, speed = 10;

	memset(name, 0, sizeof(name));
	if (len < 8)
		return -1;
	memcpy(&magic, frame, sizeof(magic));
	if (magic != CONTROL_MAGIC || frame[4] != CONTROL_VERSION)
		return -1;
	for (at = 5; at + 2 <= len && frame[at]; at += 2 + frame[at + 1]) {
		u32 size = frame[at + 1];
		const u8 *data = frame + at + 2;

		if (at + 2 + size > len)
			return -1;
		if (frame[at] == 3 && size == 2)
			speed = data[0] | data[1] << 8;
		else if (frame[at] == 7)
			memcpy(name, data, size);
		else
			return -1;
	}
	return (speed ^ fnv1a(name, name + sizeof(name))) & 0xffff;
}
#else
#define vortex_control(frame, len) ((void)0)
#endif

static void vortex_tx_done(struct vortex_private *vp)
{
	for (; vp->dirty_tx != vp->cur_tx; vp->dirty_tx++) {
		struct sk_buff *skb = vp->tx_ring[vp->dirty_tx % TX_RING_SIZE];

		vp->packets++;
		vp->bytes += skb->len;
		vp->sum = fnv1a_more(vp->sum, skb->data, skb->data + skb->len);
		kfree(skb);
	}
}

PROBE_POINT int vortex_open(struct net_device *dev)
{
	struct vortex_private *vp = kmalloc(sizeof(*vp));

	counters.vortex_opens++;
	if (!vp)
		return -1;
	memset(vp, 0, sizeof(*vp));
	vp->sum = FNV1A_START;
	dev->priv = vp;
	TRACE(vortex_trace, DTI_LEVEL_NOTICE, "%s: open", dev->name);
	return 0;
}

PROBE_POINT int vortex_start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct vortex_private *vp = dev->priv;

	counters.vortex_xmits++;
	SDT_SITE(sdt_site_3, SDT_CALL, counters.sdt[3]);
	vortex_control(skb->data, skb->len);
	TRACE_DATA(vortex_trace, DTI_LEVEL_DEBUG, skb, sizeof(*skb) + (skb->len < 28 ? skb->len : 28));
	TRACE_CRASH(vortex_trace, vp->cur_tx);
	if (vp->cur_tx - vp->dirty_tx == TX_RING_SIZE)
		vortex_tx_done(vp);
	vp->tx_ring[vp->cur_tx++ % TX_RING_SIZE] = skb;
	return 0;
}

PROBE_POINT int vortex_close(struct net_device *dev)
{
	struct vortex_private *vp = dev->priv;

	counters.vortex_closes++;
	vortex_tx_done(vp);
	TRACE(vortex_trace, DTI_LEVEL_NOTICE, "%s: close after %u frames", dev->name, vp->packets);
	printk("%s: %u frames, %u bytes, sum %x\n", dev->name, vp->packets, vp->bytes,
	       (word)vp->sum);
	kfree(vp);
	dev->priv = 0;
	return 0;
}

static struct net_device vortex_device = {
	.name = "eth0",
	.open = vortex_open,
	.hard_start_xmit = vortex_start_xmit,
	.stop = vortex_close,
};

static void vortex_init(void)
{
	register_netdev(&vortex_device);
}

static void vortex_cleanup(void)
{
	unregister_netdev(&vortex_device);
}

extern const u8 _s3c59x[], _e3c59x[];

const struct module_code vortex_module = {
	.name = "3c59x",
	.start = _s3c59x,
	.end = _e3c59x,
	.init = vortex_init,
	.exit = vortex_cleanup,
};
