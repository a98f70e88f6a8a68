/* SPDX-License-Identifier: GPL-2.0-or-later
 * What the drivers trace. Only the kernels named dti do; in the others nothing is left of it. */
#ifndef DRIVER_TRACE_H
#define DRIVER_TRACE_H

#ifdef TRAPLINE_DTI
#include <trapline/dti.h>

extern struct dti_handle kernel_trace;

#define TRACE_HANDLE(handle, name, bytes, level, early) DEFINE_DTI_HANDLE(handle, name, bytes, level, early)
#define TRACE(handle, prio, ...) dti_printk(handle, prio, __VA_ARGS__)
#define TRACE_DATA(handle, prio, data, len) dti_event(handle, prio, data, len)
/* From here on, channels can be made. */
#define TRACE_MEMORY_READY() trace_memory_ready()
/* With `dti=crash` on the command line, the sixth call writes data of which the end is not mapped. */
#define TRACE_OPTIONS(cmdline) trace_options(cmdline)
#define TRACE_CRASH(handle, call) trace_crash(&(handle), call)

void trace_memory_ready(void);
void trace_options(const char *cmdline);
void trace_crash(struct dti_handle *handle, unsigned call);
#else
#define TRACE_HANDLE(handle, name, bytes, level, early) _Static_assert(1, "")
#define TRACE(handle, prio, ...) do { } while (0)
#define TRACE_DATA(handle, prio, data, len) do { } while (0)
#define TRACE_MEMORY_READY() do { } while (0)
#define TRACE_OPTIONS(cmdline) do { } while (0)
#define TRACE_CRASH(handle, call) do { } while (0)
#endif

#endif
