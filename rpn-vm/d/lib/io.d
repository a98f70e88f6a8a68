/* Input and output: what the arguments of io and fds[] are translated to. */

inline int B_BUSY = 0x1;
inline int B_DONE = 0x2;
inline int B_ERROR = 0x4;
inline int B_PAGEIO = 0x10;
inline int B_PHYS = 0x20;
inline int B_READ = 0x40;
inline int B_WRITE = 0x100;
inline int B_ASYNC = 0x400;

typedef char *caddr_t;

typedef struct bufinfo {
	int b_flags;
	size_t b_bcount;
	caddr_t b_addr;
	uint64_t b_lblkno;
	uint64_t b_blkno;
	size_t b_resid;
	size_t b_bufsize;
	caddr_t b_iodone;
	int b_error;
	dev_t b_edev;
} bufinfo_t;

translator bufinfo_t < struct bio *B > {
	b_flags = (B->bi_opf & 1 ? B_WRITE : B_READ) | (B->bi_opf & (1 << 11) ? 0 : B_ASYNC) |
	    (B->bi_status ? B_ERROR : 0);
	b_bcount = B->bi_iter.bi_size;
	b_addr = (caddr_t)B;
	b_lblkno = B->bi_iter.bi_sector;
	b_blkno = B->bi_iter.bi_sector;
	b_resid = B->bi_iter.bi_size;
	b_bufsize = B->bi_iter.bi_size;
	b_iodone = (caddr_t)B->bi_end_io;
	b_error = B->bi_status;
	b_edev = B->bi_bdev->bd_dev;
};

typedef struct devinfo {
	int dev_major;
	int dev_minor;
	int dev_instance;
	string dev_name;
	string dev_statname;
	string dev_pathname;
} devinfo_t;

translator devinfo_t < struct bio *B > {
	dev_major = B->bi_bdev->bd_dev >> 20;
	dev_minor = B->bi_bdev->bd_dev & 0xfffff;
	dev_instance = B->bi_bdev->bd_dev & 0xfffff;
	dev_name = stringof(B->bi_bdev->bd_disk->disk_name);
	dev_statname = stringof(B->bi_bdev->bd_device.kobj.name);
	dev_pathname = strjoin("/dev/", stringof(B->bi_bdev->bd_device.kobj.name));
};

typedef struct fileinfo {
	string fi_name;
	string fi_dirname;
	string fi_pathname;
	offset_t fi_offset;
	string fi_fs;
	string fi_mount;
	int fi_oflags;
} fileinfo_t;

/* A bio does not say which file it belongs to. */
translator fileinfo_t < struct bio *B > {
	fi_name = "<none>";
	fi_dirname = "<none>";
	fi_pathname = "<none>";
	fi_offset = 0;
	fi_fs = "<none>";
	fi_mount = "<none>";
	fi_oflags = 0;
};

translator fileinfo_t < struct file *F > {
	fi_name = F == NULL ? "<none>" : stringof(F->f_path.dentry->d_name.name);
	fi_dirname = F == NULL ? "<none>" : dirname(d_path(&F->f_path));
	fi_pathname = F == NULL ? "<none>" : d_path(&F->f_path);
	fi_offset = F == NULL ? 0 : F->f_pos;
	fi_fs = F == NULL ? "<none>" : stringof(F->f_inode->i_sb->s_type->name);
	fi_oflags = F == NULL ? 0 : F->f_flags;
};

inline fileinfo_t fds[int fd] = xlate <fileinfo_t> (
    fd >= 0 && curthread->files != NULL && fd < curthread->files->fdt->max_fds ?
    curthread->files->fdt->fd[fd] : (struct file *)NULL);

inline int O_ACCMODE = 0x3;
inline int O_RDONLY = 0;
inline int O_WRONLY = 0x1;
inline int O_RDWR = 0x2;
inline int O_CREAT = 0x40;
inline int O_EXCL = 0x80;
inline int O_NOCTTY = 0x100;
inline int O_TRUNC = 0x200;
inline int O_APPEND = 0x400;
inline int O_NONBLOCK = 0x800;
inline int O_NDELAY = 0x800;
inline int O_DSYNC = 0x1000;
inline int O_SYNC = 0x101000;
inline int O_RSYNC = 0x101000;
inline int O_CLOEXEC = 0x80000;
