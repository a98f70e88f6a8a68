//! The container of a PPDF file: header, sections, signature and checksum. Other files read the content of sections.

use super::error::PpdfError;
use super::sign::{ED25519, SigningKey, VerifyingKey};
use super::{CHECKSUM, HEADER, MAGIC, MAX_FILE, SECTION_HEAD, SECTIONS, SIGNATURE, VERSION};
use crate::signature::{SIGNATURE_BYTES, Signed};

/// One section: its content and the offset of the content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    pub name: &'static str,
    pub offset: usize,
    pub bytes: &'a [u8],
}

/// A file taken apart.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub version: (u16, u16),
    /// In the order of [`SECTIONS`].
    pub sections: [Section<'a>; SECTIONS.len()],
    pub signer: Option<VerifyingKey>,
    pub signed: Option<Signed>,
}

/// How a file is signed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seal<'a> {
    Unsigned,
    By(&'a SigningKey),
    /// As the file was from which the program was read.
    Kept(&'a Signed),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|raw| u16::from_le_bytes(*raw))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|raw| u32::from_le_bytes(*raw))
}

/// The section that must begin at `at`, and the offset of the next one.
fn section<'a>(bytes: &'a [u8], at: usize, name: &'static str) -> Result<(Section<'a>, usize), PpdfError> {
    let tag = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
    if tag.map(<[u8; 4]>::as_slice) != Some(name.as_bytes()) {
        let rest = bytes.get(at..).unwrap_or_default();
        let found: Vec<String> = rest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let found = if found.is_empty() { "the end of the file".to_owned() } else { found.join(" ") };
        return Err(PpdfError::Section { offset: at, found, wanted: name });
    }
    let length = u32_at(bytes, at + 4);
    let length =
        length.ok_or(PpdfError::Ends { offset: at + 4, section: name, what: "its length".to_owned() })?;
    let offset = at + SECTION_HEAD;
    let left = bytes.len().saturating_sub(offset);
    let end = usize::try_from(length).ok().and_then(|length| offset.checked_add(length));
    let content = end.and_then(|end| Some((end, bytes.get(offset..end)?)));
    let (end, content) =
        content.ok_or(PpdfError::SectionLength { offset: at + 4, section: name, length, left })?;
    Ok((Section { name, offset, bytes: content }, end))
}

/// Checks header and checksum and returns the version.
fn check_whole(bytes: &[u8]) -> Result<(u16, u16), PpdfError> {
    if !super::is_ppdf(bytes) {
        return Err(PpdfError::Magic);
    }
    let (Some(major), Some(minor)) = (u16_at(bytes, 8), u16_at(bytes, 10)) else {
        return Err(PpdfError::NoHeader(bytes.len()));
    };
    if major != VERSION.0 {
        return Err(PpdfError::Version { major, minor });
    }
    let stated = u32_at(bytes, 12).ok_or(PpdfError::NoHeader(bytes.len()))?;
    if bytes.len() > MAX_FILE {
        return Err(PpdfError::TooLarge(bytes.len()));
    }
    if u32::try_from(bytes.len()) != Ok(stated) {
        return Err(PpdfError::Length { stated, actual: bytes.len() });
    }
    let offset = bytes.len().saturating_sub(4);
    let (content, last) = bytes.split_at(offset);
    let stated = u32_at(last, 0).ok_or(PpdfError::NoHeader(bytes.len()))?;
    let actual = crc32fast::hash(content);
    if stated != actual {
        return Err(PpdfError::Checksum { offset, stated, actual });
    }
    Ok((major, minor))
}

/// Checks the signature over everything before its section.
fn check_signature(bytes: &[u8], section: Section<'_>) -> Result<VerifyingKey, PpdfError> {
    let wrong = |at: usize, what: &str, value: String, right: &str| PpdfError::Value {
        offset: section.offset + at,
        what: what.to_owned(),
        value,
        right: right.to_owned(),
    };
    let content: &[u8; SIGNATURE_BYTES] = section.bytes.try_into().map_err(|_| {
        wrong(0, "the length of section `SIGN`", section.bytes.len().to_string(), "it must be 100")
    })?;
    let algorithm = u32_at(content, 0).unwrap_or_default();
    if algorithm != ED25519 {
        return Err(wrong(0, "the kind of signature", algorithm.to_string(), "it must be 1 (Ed25519)"));
    }
    let key = content[4..].first_chunk().and_then(VerifyingKey::from_bytes);
    let hex: String = content[4..36].iter().map(|byte| format!("{byte:02x}")).collect();
    let key =
        key.ok_or_else(|| wrong(4, "the public key", hex, "it must be a point of the Ed25519 curve"))?;
    let message = bytes.get(..section.offset - SECTION_HEAD).unwrap_or_default();
    match content[36..].first_chunk() {
        Some(signature) if key.checks(message, signature) => Ok(key),
        _ => Err(PpdfError::Signature { offset: section.offset + 36, key }),
    }
}

/// Takes a file apart.
pub(super) fn split(bytes: &[u8]) -> Result<Frame<'_>, PpdfError> {
    let version = check_whole(bytes)?;
    let mut at = HEADER;
    let mut sections = [Section { name: "", offset: 0, bytes: &[] }; SECTIONS.len()];
    for (slot, name) in sections.iter_mut().zip(SECTIONS) {
        (*slot, at) = section(bytes, at, name)?;
    }
    let (mut signer, mut signed) = (None, None);
    if bytes.get(at..).is_some_and(|rest| rest.starts_with(SIGNATURE.as_bytes())) {
        let (found, next) = section(bytes, at, SIGNATURE)?;
        signer = Some(check_signature(bytes, found)?);
        signed = found.bytes.try_into().ok().map(|section| Signed { minor: version.1, section });
        at = next;
    }
    let (last, next) = section(bytes, at, CHECKSUM)?;
    let trailing = |offset, left| PpdfError::Trailing { offset, section: CHECKSUM, left };
    if last.bytes.len() != 4 {
        return Err(match last.bytes.len().checked_sub(4) {
            Some(left) => trailing(last.offset + 4, left),
            None => {
                PpdfError::Ends { offset: last.offset, section: CHECKSUM, what: "the checksum".to_owned() }
            }
        });
    }
    match bytes.len() - next {
        0 => Ok(Frame { version, sections, signer, signed }),
        left => Err(trailing(next, left)),
    }
}

/// Puts a file together.
pub(super) fn join(sections: [Vec<u8>; SECTIONS.len()], seal: Seal<'_>) -> Vec<u8> {
    let content: usize = sections.iter().map(|s| s.len() + SECTION_HEAD).sum();
    let signature = if matches!(seal, Seal::Unsigned) { 0 } else { SECTION_HEAD + SIGNATURE_BYTES };
    let length = HEADER + content + signature + SECTION_HEAD + 4;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.0.to_le_bytes());
    let minor = if let Seal::Kept(signed) = seal { signed.minor } else { VERSION.1 };
    out.extend_from_slice(&minor.to_le_bytes());
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    for (name, bytes) in SECTIONS.into_iter().zip(sections) {
        push(&mut out, name, &bytes);
    }
    match seal {
        Seal::Unsigned => {}
        Seal::By(key) => {
            let signature = key.section(&out);
            push(&mut out, SIGNATURE, &signature);
        }
        Seal::Kept(signed) => push(&mut out, SIGNATURE, &signed.section),
    }
    out.extend_from_slice(CHECKSUM.as_bytes());
    out.extend_from_slice(&4u32.to_le_bytes());
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn push(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}
