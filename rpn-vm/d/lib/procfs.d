/*
 * Processes and threads: what the arguments of proc and sched, curpsinfo and curlwpsinfo are translated to.
 * The members are those of the DTrace guide; the values are read from Linux's struct task_struct.
 */

inline char PR_MODEL_UNKNOWN = 0;
inline char PR_MODEL_ILP32 = 1;
inline char PR_MODEL_LP64 = 2;

inline int PR_ISSYS = 0x1000;

inline char SSLEEP = 1;
inline char SRUN = 2;
inline char SZOMB = 3;
inline char SSTOP = 4;
inline char SIDL = 5;
inline char SONPROC = 6;
inline char SWAIT = 7;

inline int CLD_EXITED = 1;
inline int CLD_KILLED = 2;
inline int CLD_DUMPED = 3;
inline int CLD_TRAPPED = 4;
inline int CLD_STOPPED = 5;
inline int CLD_CONTINUED = 6;

typedef struct psinfo {
	int pr_nlwp;
	pid_t pr_pid;
	pid_t pr_ppid;
	pid_t pr_pgid;
	pid_t pr_sid;
	uid_t pr_uid;
	uid_t pr_euid;
	gid_t pr_gid;
	gid_t pr_egid;
	uintptr_t pr_addr;
	char pr_fname[16];
	string pr_psargs;
	char pr_dmodel;
	id_t pr_taskid;
	id_t pr_projid;
	id_t pr_poolid;
	zoneid_t pr_zoneid;
} psinfo_t;

translator psinfo_t < struct task_struct *T > {
	pr_nlwp = T->signal->nr_threads;
	pr_pid = T->tgid;
	pr_ppid = T->real_parent->tgid;
	pr_pgid = T->signal->pids[2]->numbers[0].nr;
	pr_sid = T->signal->pids[3]->numbers[0].nr;
	pr_uid = T->cred->uid.val;
	pr_euid = T->cred->euid.val;
	pr_gid = T->cred->gid.val;
	pr_egid = T->cred->egid.val;
	pr_addr = (uintptr_t)T;
	pr_fname = T->comm;
	pr_psargs = T->mm == NULL ? stringof(T->comm) : __psargs(T, T->mm->arg_start, T->mm->arg_end);
	pr_dmodel = T->thread_info.flags & (1 << 29) ? PR_MODEL_ILP32 : PR_MODEL_LP64;
	pr_taskid = 0;
	pr_projid = 0;
	pr_poolid = 0;
	pr_zoneid = 0;
};

typedef struct lwpsinfo {
	int pr_flag;
	id_t pr_lwpid;
	uintptr_t pr_addr;
	char pr_state;
	char pr_sname;
	char pr_nice;
	int pr_pri;
	processorid_t pr_onpro;
} lwpsinfo_t;

translator lwpsinfo_t < struct task_struct *T > {
	pr_flag = T->mm == NULL ? PR_ISSYS : 0;
	pr_lwpid = T->pid;
	pr_addr = (uintptr_t)T;
	pr_state = T->exit_state & 0x30 ? SZOMB : T->__state & 0xc ? SSTOP : T->__state & 3 ? SSLEEP :
	    T->on_cpu ? SONPROC : SRUN;
	pr_sname = T->exit_state & 0x30 ? 'Z' : T->__state & 0xc ? 'T' : T->__state & 3 ? 'S' :
	    T->on_cpu ? 'O' : 'R';
	pr_nice = T->static_prio - 120;
	pr_pri = T->prio;
	pr_onpro = T->thread_info.cpu;
};

inline psinfo_t *curpsinfo = xlate <psinfo_t *> (curthread);
inline lwpsinfo_t *curlwpsinfo = xlate <lwpsinfo_t *> (curthread);
inline pid_t ppid = curthread->real_parent->tgid;

/* The parents of a process are looked through by the host, because D has no loops. */
inline int progenyof[pid_t pid] = __progenyof(pid, offsetof (struct task_struct, real_parent),
    offsetof (struct task_struct, tgid));
