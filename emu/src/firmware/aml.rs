//! As much of ACPI's machine language (ACPI 6.5, chapter 20) as the DSDT needs, and its resource descriptors (6.4).

/// A package, scope or device body with its length before it (20.2.4). The length counts itself.
fn with_length(body: &[u8]) -> Vec<u8> {
    let mut out = match body.len() + 1 {
        short @ 0..=0x3f => vec![short as u8],
        _ => {
            let length = body.len() + 2;
            vec![0x40 | (length & 0xf) as u8, (length >> 4) as u8]
        }
    };
    debug_assert!(body.len() + 2 < 0x1000, "no table here is as long");
    out.extend(body);
    out
}

/// A name of at most four characters, filled up with `_`; a leading `\` stays before it.
fn name_string(name: &str) -> Vec<u8> {
    let (root, segment) = name.strip_prefix('\\').map_or(("", name), |segment| ("\\", segment));
    format!("{root}{segment:_<4}").into_bytes()
}

/// An integer, in as few bytes as hold it.
pub(super) fn integer(value: u32) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    let [low, second, ..] = bytes;
    match value {
        0 | 1 => vec![low],
        2..=0xff => vec![0x0a, low],
        0x100..=0xffff => vec![0x0b, low, second],
        _ => [&[0x0c], bytes.as_slice()].concat(),
    }
}

/// A string of ASCII.
pub(super) fn string(text: &str) -> Vec<u8> {
    [b"\x0d", text.as_bytes(), b"\0"].concat()
}

/// A buffer with its size.
pub(super) fn buffer(bytes: &[u8]) -> Vec<u8> {
    let body = [integer(bytes.len() as u32).as_slice(), bytes].concat();
    [b"\x11", with_length(&body).as_slice()].concat()
}

/// A package of at most 255 elements.
pub(super) fn package(elements: &[Vec<u8>]) -> Vec<u8> {
    let body = [&[elements.len() as u8], elements.concat().as_slice()].concat();
    [b"\x12", with_length(&body).as_slice()].concat()
}

/// `Name (name, value)`.
pub(super) fn name(name: &str, value: &[u8]) -> Vec<u8> {
    [b"\x08", name_string(name).as_slice(), value].concat()
}

/// `Scope (name) { body }`.
pub(super) fn scope(name: &str, body: &[Vec<u8>]) -> Vec<u8> {
    let body = [name_string(name), body.concat()].concat();
    [b"\x10", with_length(&body).as_slice()].concat()
}

/// `Device (name) { body }`.
pub(super) fn device(name: &str, body: &[Vec<u8>]) -> Vec<u8> {
    let body = [name_string(name), body.concat()].concat();
    [b"\x5b\x82", with_length(&body).as_slice()].concat()
}

/// `ResourceTemplate () { .. }`: descriptors, then the end tag.
pub(super) fn resources(descriptors: &[Vec<u8>]) -> Vec<u8> {
    buffer(&[descriptors.concat().as_slice(), b"\x79\0"].concat())
}

/// `Memory32Fixed (ReadWrite, base, length)`.
pub(super) fn memory32(base: u32, length: u32) -> Vec<u8> {
    [[0x86, 9, 0, 1].as_slice(), &base.to_le_bytes(), &length.to_le_bytes()].concat()
}

/// `Interrupt (ResourceConsumer, Level, ActiveHigh, Exclusive) { gsi }`.
pub(super) fn interrupt(gsi: u8) -> Vec<u8> {
    vec![0x89, 6, 0, 1, 1, gsi, 0, 0, 0]
}

/// The compressed identifier `PNP0A03`: a PCI root bridge.
pub(super) const PCI_ROOT: u32 = 0x030a_d041;

/// `WordBusNumber` or `WordIO` that the bridge hands on: from `first` to `last`, both fixed.
fn word_space(kind: u8, flags: u8, first: u16, last: u16) -> Vec<u8> {
    let mut bytes = vec![0x88, 13, 0, kind, 0x0c, flags];
    for word in [0, first, last, 0, last - first + 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// `WordBusNumber`: bus 0 alone.
pub(super) fn bus_zero() -> Vec<u8> {
    word_space(2, 0, 0, 0)
}

/// `WordIO` of a bridge.
pub(super) fn bridge_ports(first: u16, last: u16) -> Vec<u8> {
    word_space(1, 3, first, last)
}

/// `DWordMemory` of a bridge, not cacheable.
pub(super) fn bridge_memory(first: u32, last: u32) -> Vec<u8> {
    let mut bytes = vec![0x87, 23, 0, 0, 0x0c, 1];
    for word in [0, first, last, 0, last - first + 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// `IO (Decode16, first, first, 1, count)`.
pub(super) fn ports(first: u16, count: u8) -> Vec<u8> {
    let [low, high] = first.to_le_bytes();
    vec![0x47, 1, low, high, low, high, 1, count]
}
