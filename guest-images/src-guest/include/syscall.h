/* SPDX-License-Identifier: GPL-2.0-or-later
 * System calls: number in eax, arguments in ebx, ecx (IA32, int 0x80) or rdi, rsi (x86-64, SYSCALL);
 * result in eax or rax. */
#ifndef SYSCALL_H
#define SYSCALL_H

#define SYS_EXIT 1    /* (status) */
#define SYS_FORK 2    /* () -> 0 in the child, its pid in the parent */
#define SYS_WAIT 3    /* (pid) -> its exit status */
#define SYS_WRITE 4   /* (buffer, bytes) */
#define SYS_GETPID 5  /* () */
#define SYS_KMALLOC 6 /* (bytes) -> kernel address, 0 when full */
#define SYS_KFREE 7   /* (kernel address) -> 0, or -1 for what kmalloc never gave */
#define SYS_SLEEP 8   /* (ticks) */
#define SYS_SWAP 9    /* (pages) -> how many of the caller's pages were taken away */
#define SYS_UPTIME 10 /* () -> ticks since boot */
#define SYS_SETUID 11 /* (uid) */
#define SYS_YIELD 12  /* () lets the next task run */
#define SYS_SETNAME 13    /* (name, bytes) */
#define SYS_FILE_WRITE 14 /* (buffer, bytes) -> bytes appended to the file */
#define SYS_FILE_SUM 15   /* () -> checksum of the file */
#define SYS_NET_OPEN 16   /* () -> 0 */
#define SYS_NET_SEND 17   /* (frame, bytes) -> 0 */
#define SYS_NET_CLOSE 18  /* () -> 0 */

#endif
