//! The setup header of a bzImage (boot.rst section 1.1, "The real-mode kernel header").

use std::ops::Range;

use super::LinuxError;

/// Offset of the header in the file and in the boot parameters.
pub(in crate::load) const HEADER_AT: usize = 0x1f1;
/// The header ends at most here: 0x202 and the largest value of the jump's displacement byte at 0x201.
const HEADER_END: usize = 0x202 + 0xff;
const SECTOR: u64 = 512;

/// The kernel takes the command line at an address of its own choice (CAN_USE_HEAP and LOADED_HIGH of `loadflags`).
const LOADED_HIGH: u8 = 1;
/// KASLR_FLAG: the image's own decompressor has moved the kernel.
const KASLR: u8 = 1 << 1;
const CAN_USE_HEAP: u8 = 1 << 7;
/// XLF_KERNEL_64 of `xloadflags`.
const KERNEL_64: u16 = 1;

/// A setup header: the bytes from 0x1f1 to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupHeader {
    bytes: Vec<u8>,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $at:literal, since $since:literal, else $default:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(&self) -> $type {
            const AT: usize = $at - HEADER_AT;
            let raw = self.bytes.get(AT..AT + size_of::<$type>());
            raw.filter(|_| self.version() >= $since).and_then(|raw| raw.try_into().ok()).map_or($default, <$type>::from_le_bytes)
        })*
    };
}

impl SetupHeader {
    fields! {
        /// Sectors of 512 bytes of real-mode code after the first.
        setup_sects: u8 = 0x1f1, since 0x200, else 4;
        /// Size of the protected-mode code in units of 16 bytes.
        syssize: u32 = 0x1f4, since 0x204, else 0;
        /// LOADED_HIGH and others.
        loadflags: u8 = 0x211, since 0x200, else 0;
        /// Physical address of the protected-mode code.
        code32_start: u32 = 0x214, since 0x200, else 0x10_0000;
        /// Highest address that the last byte of the initrd may have.
        initrd_addr_max: u32 = 0x22c, since 0x203, else 0x37ff_ffff;
        /// XLF_KERNEL_64 and others.
        xloadflags: u16 = 0x236, since 0x20c, else 0;
        /// Most bytes of a command line, without its NUL.
        cmdline_size: u32 = 0x238, since 0x206, else 255;
        /// Where the payload lies in the protected-mode code.
        payload_offset: u32 = 0x248, since 0x208, else 0;
        /// Length of the payload in bytes.
        payload_length: u32 = 0x24c, since 0x208, else 0;
        /// Where the kernel is unpacked to, if it is loaded below.
        pref_address: u64 = 0x258, since 0x20a, else 0x10_0000;
        /// Bytes of memory that the image needs from where it is loaded.
        init_size: u32 = 0x260, since 0x20a, else 0;
    }

    /// Protocol version, the major number in the upper byte.
    pub fn version(&self) -> u16 {
        const AT: usize = 0x206 - HEADER_AT;
        self.bytes.get(AT..AT + 2).and_then(|raw| raw.try_into().ok()).map_or(0, u16::from_le_bytes)
    }

    /// Reads the header of a file that has one.
    pub(in crate::load) fn parse(file: &[u8]) -> Result<Self, LinuxError> {
        let len = file.len() as u64;
        let truncated = |what, end: usize| LinuxError::Truncated { what, end: end as u64, len };
        let version = file.get(0x206..0x208).and_then(|raw| raw.try_into().ok()).map(u16::from_le_bytes);
        let version = version.ok_or(truncated("setup header", 0x208))?;
        if version < 0x200 {
            return Err(LinuxError::Protocol { version });
        }
        // The jump at 0x200 skips the header, so its second byte gives the header's end.
        let displacement = file.get(0x201).copied().unwrap_or(0);
        let end = (0x202 + usize::from(displacement)).clamp(0x218, HEADER_END);
        let bytes = file.get(HEADER_AT..end).ok_or(truncated("setup header", end))?.to_vec();
        let header = Self { bytes };
        if header.loadflags() & LOADED_HIGH == 0 {
            return Err(LinuxError::NotHigh);
        }
        header.protected_mode(file)?;
        Ok(header)
    }

    /// The header that a loader makes up for a bare ELF file: protocol 2.12.
    pub(in crate::load) fn for_vmlinux(wide: bool) -> Self {
        let mut bytes = vec![0; 0x268 - HEADER_AT];
        let mut put = |at: usize, value: &[u8]| {
            if let Some(field) = bytes.get_mut(at - HEADER_AT..at - HEADER_AT + value.len()) {
                field.copy_from_slice(value);
            }
        };
        put(0x1fe, &0xaa55u16.to_le_bytes());
        put(0x202, b"HdrS");
        put(0x206, &0x20cu16.to_le_bytes());
        put(0x211, &[LOADED_HIGH]);
        put(0x214, &0x10_0000u32.to_le_bytes());
        let initrd_max: u32 = if wide { 0x7fff_ffff } else { 0x37ff_ffff };
        put(0x22c, &initrd_max.to_le_bytes());
        put(0x236, &(u16::from(wide) * KERNEL_64).to_le_bytes());
        put(0x238, &2047u32.to_le_bytes());
        Self { bytes }
    }

    /// True if the protected-mode code has a 64-bit entry point at its offset 0x200.
    pub fn has_64_bit_entry(&self) -> bool {
        self.xloadflags() & KERNEL_64 != 0
    }

    /// Where the protected-mode code begins in the file.
    fn protected_mode_start(&self) -> u64 {
        let sectors = match self.setup_sects() {
            0 => 4,
            sectors => u64::from(sectors),
        };
        (sectors + 1) * SECTOR
    }

    /// The end of the file as built; anything after it was appended later.
    pub(in crate::load) fn built_end(&self) -> u64 {
        self.protected_mode_start() + u64::from(self.syssize()) * 16
    }

    /// Where the protected-mode code lies in the file.
    pub(in crate::load) fn protected_mode(&self, file: &[u8]) -> Result<Range<usize>, LinuxError> {
        let start = self.protected_mode_start();
        let len = file.len() as u64;
        match usize::try_from(start) {
            Ok(start) if start < file.len() => Ok(start..file.len()),
            _ => Err(LinuxError::Truncated { what: "real-mode code", end: start, len }),
        }
    }

    /// The payload's bytes; `None` if the image has none.
    pub(in crate::load) fn payload<'a>(&self, file: &'a [u8]) -> Result<Option<&'a [u8]>, LinuxError> {
        if self.payload_length() == 0 {
            return Ok(None);
        }
        let code = self.protected_mode(file)?;
        let start = code.start as u64 + u64::from(self.payload_offset());
        let end = start + u64::from(self.payload_length());
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let found = range.and_then(|(start, end)| file.get(start..end));
        let len = file.len() as u64;
        found.map(Some).ok_or(LinuxError::Truncated { what: "payload", end, len })
    }

    /// The header as a loader hands it on: with its own type, and the command line, initrd and list of
    /// `setup_data` that it has placed.
    pub(in crate::load) fn filled(&self, cmdline: u32, initrd: u32, initrd_len: u32, data: u64) -> Vec<u8> {
        const UNDEFINED_LOADER: u8 = 0xff;
        const WITH_SETUP_DATA: u16 = 0x209;
        let mut bytes = self.bytes.clone();
        let mut put = |at: usize, value: &[u8]| {
            if let Some(field) = bytes.get_mut(at - HEADER_AT..).and_then(|rest| rest.get_mut(..value.len()))
            {
                field.copy_from_slice(value);
            }
        };
        put(0x210, &[UNDEFINED_LOADER]);
        put(0x211, &[self.loadflags() & !(CAN_USE_HEAP | KASLR)]);
        put(0x218, &initrd.to_le_bytes());
        put(0x21c, &initrd_len.to_le_bytes());
        put(0x228, &cmdline.to_le_bytes());
        if self.version() >= WITH_SETUP_DATA {
            put(0x250, &data.to_le_bytes());
        }
        bytes
    }
}
