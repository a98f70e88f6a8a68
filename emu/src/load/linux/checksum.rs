//! The checksum at the end of a bzImage (boot.rst section 1.3, "The image checksum").
//!
//! Until Linux 6.14 the build appends the CRC-32 of the whole file, so that the CRC over file and checksum is always
//! the same. A signature for Secure Boot comes after that: it changes two fields of the PE header and appends
//! certificates, all of which the build had left empty, so that the original file can be reconstructed. Later kernels
//! have no checksum, and neither do other programs that use the boot protocol; those are accepted unchecked.

use super::{LinuxError, SetupHeader};

/// The first release without a checksum.
const DROPPED: (u32, u32) = (6, 15);
/// The CRC-32 of a file that ends with its own CRC-32. boot.rst says 0, since it leaves out the final complement.
const RESIDUE: u32 = 0xffff_ffff;

/// Checks that the file is as it was built; a file without a checksum passes.
///
/// # Errors
/// The checksum does not match, or is cut off.
pub(in crate::load) fn check(file: &[u8], header: &SetupHeader) -> Result<(), LinuxError> {
    if header.version() < 0x208 || release(file).is_none_or(|release| release >= DROPPED) {
        return Ok(());
    }
    let end = header.built_end();
    let len = file.len() as u64;
    let summed = usize::try_from(end).ok().and_then(|end| file.get(..end));
    let summed = summed.ok_or(LinuxError::Truncated { what: "protected-mode code", end, len })?;
    let mut crc = flate2::Crc::new();
    let mut at = 0;
    for (start, size) in signed_fields(summed).into_iter().flatten() {
        crc.update(summed.get(at..start).unwrap_or_default());
        crc.update([0; 8].get(..size).unwrap_or_default());
        at = start + size;
    }
    crc.update(summed.get(at..).unwrap_or_default());
    match crc.sum() {
        RESIDUE => Ok(()),
        found => Err(LinuxError::Checksum { end, found }),
    }
}

/// The release that the version string begins with: major and minor number (1.1, `kernel_version`).
fn release(file: &[u8]) -> Option<(u32, u32)> {
    let pointer = u16::from_le_bytes(*file.get(0x20e..)?.first_chunk()?);
    let text = file.get(0x200 + usize::from(pointer)..).filter(|_| pointer != 0)?;
    let (major, rest) = number(text)?;
    let (minor, _) = number(rest.strip_prefix(b".")?)?;
    Some((major, minor))
}

/// The decimal number that the text begins with, at most three digits, and what comes after it.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits).filter(|_| (1..=3).contains(&digits))?;
    Some((number.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')), rest))
}

/// Offset and size of the fields that a signature fills in, if the file is a PE executable too: the optional header's
/// CheckSum, and the certificate table in its data directories (PE format, "Optional Header").
fn signed_fields(file: &[u8]) -> Option<[(usize, usize); 2]> {
    let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let pe = usize::try_from(word(0x3c)?).ok().filter(|_| file.starts_with(b"MZ"))?;
    (file.get(pe..)?.starts_with(b"PE\0\0")).then_some(())?;
    let optional = pe + 24;
    let directories = optional
        + match word(optional)? & 0xffff {
            0x10b => 96,
            0x20b => 112,
            _ => return None,
        };
    let certificates = directories + 4 * 8;
    (certificates + 8 <= file.len()).then_some([(optional + 64, 4), (certificates, 8)])
}
