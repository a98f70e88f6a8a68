//! gdbstub's view of the guest's files.

use std::convert::Infallible;

use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat, HostIoFstatOps,
    HostIoOpen, HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread, HostIoPreadOps, HostIoReadlink,
    HostIoReadlinkOps, HostIoResult, HostIoSetfs, HostIoSetfsOps, HostIoStat,
};

use crate::debuggee::Debuggee;
use crate::files::part;

fn errno(errno: HostIoErrno) -> HostIoError<Infallible> {
    HostIoError::Errno(errno)
}

impl HostIo for Debuggee {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_readlink(&mut self) -> Option<HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl HostIoOpen for Debuggee {
    fn open(
        &mut self,
        name: &[u8],
        flags: HostIoOpenFlags,
        _mode: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        if flags != HostIoOpenFlags::O_RDONLY {
            return Err(errno(HostIoErrno::EROFS));
        }
        let path = std::str::from_utf8(name).map_err(|_| errno(HostIoErrno::ENOENT))?;
        let opened = self.files.open(self.timeline.session(), path);
        opened.ok_or_else(|| errno(HostIoErrno::ENOENT))
    }
}

impl HostIoClose for Debuggee {
    fn close(&mut self, number: u32) -> HostIoResult<(), Self> {
        if self.files.close(number) { Ok(()) } else { Err(errno(HostIoErrno::EBADF)) }
    }
}

impl HostIoPread for Debuggee {
    fn pread(&mut self, number: u32, count: usize, offset: u64, to: &mut [u8]) -> HostIoResult<usize, Self> {
        let content = self.files.content(number).ok_or_else(|| errno(HostIoErrno::EBADF))?;
        Ok(part(content, offset, count, to))
    }
}

impl HostIoFstat for Debuggee {
    fn fstat(&mut self, number: u32) -> HostIoResult<HostIoStat, Self> {
        let size = self.files.content(number).ok_or_else(|| errno(HostIoErrno::EBADF))?.len() as u64;
        Ok(HostIoStat {
            st_dev: 0,
            st_ino: 0,
            st_mode: HostIoOpenMode::S_IFREG | HostIoOpenMode::S_IRUSR,
            st_nlink: 1,
            st_uid: 0,
            st_gid: 0,
            st_rdev: 0,
            st_size: size,
            st_blksize: 512,
            st_blocks: size.div_ceil(512),
            st_atime: 0,
            st_mtime: 0,
            st_ctime: 0,
        })
    }
}

impl HostIoReadlink for Debuggee {
    fn readlink(&mut self, name: &[u8], to: &mut [u8]) -> HostIoResult<usize, Self> {
        let path = std::str::from_utf8(name).map_err(|_| errno(HostIoErrno::ENOENT))?;
        let found = self.session().target().guest_path(path).ok_or_else(|| errno(HostIoErrno::ENOENT))?;
        if found == path {
            return Err(errno(HostIoErrno::EINVAL));
        }
        let length = to.len();
        Ok(part(found.as_bytes(), 0, length, to))
    }
}

impl HostIoSetfs for Debuggee {
    fn setfs(&mut self, _fs: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
