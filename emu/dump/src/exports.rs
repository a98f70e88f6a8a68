//! The table of a kernel's exported symbols in memory, for a kernel whose own symbols do not say where it is: without
//! `CONFIG_KALLSYMS_ALL` they name functions only, and the exported symbols add its data.
//!
//! An entry is three i32, each a distance from its own place: value, name, namespace (include/linux/export.h,
//! `CONFIG_HAVE_ARCH_PREL32_RELOCATIONS`). The entry of `init_task`, which every kernel exports, leads to the table: the
//! entries around it whose names are names. Nothing is guessed: there must be exactly one such table.

use std::ops::Range;

use memchr::memmem;

/// A symbol that every kernel exports, between the ends of other names.
const KNOWN: &[u8] = b"\0init_task\0";
const ENTRY: usize = 12;
/// Offset of the name in an entry.
const NAME: usize = 4;
/// The longest name (KSYM_NAME_LEN).
const LONGEST: usize = 512;
/// Fewest entries of a table: a kernel exports thousands.
const FEWEST: usize = 500;

/// Where a kernel's exports are, by offsets in its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exports {
    /// The entries.
    pub entries: Range<u64>,
    /// Their names.
    pub names: Range<u64>,
}

/// The exports of an image; `None` if it does not have exactly one table of them.
pub fn find(image: &[u8]) -> Option<Exports> {
    let mut tables = memmem::find_iter(image, KNOWN).flat_map(|at| leading_to(image, at + 1));
    let (first, next) = (tables.next()?, tables.next());
    next.is_none().then_some(first)
}

/// The tables with an entry whose name is at this offset.
fn leading_to(image: &[u8], name: usize) -> impl Iterator<Item = Exports> {
    let words = image.chunks_exact(4).enumerate().map(|(n, word)| (4 * n, word));
    let leads = move |(at, word): (usize, &[u8])| {
        let distance = i32::from_le_bytes(*word.first_chunk()?);
        (at.checked_add_signed(distance as isize) == Some(name)).then(|| at.checked_sub(NAME)).flatten()
    };
    words.filter_map(leads).filter_map(|entry| table(image, entry))
}

/// The table around an entry.
fn table(image: &[u8], entry: usize) -> Option<Exports> {
    let before = (1..).map_while(|n| name_of(image, entry.checked_sub(n * ENTRY)?));
    let after = (0..).map_while(|n| name_of(image, entry + n * ENTRY));
    let (before, after): (Vec<_>, Vec<_>) = (before.collect(), after.collect());
    if before.len() + after.len() < FEWEST {
        return None;
    }
    let entries = entry - before.len() * ENTRY..entry + after.len() * ENTRY;
    let names = before.iter().chain(&after);
    let (start, end) = names.fold((usize::MAX, 0), |(start, end), name| {
        // With the NUL.
        (start.min(name.start), end.max(name.end + 1))
    });
    let offsets = |range: Range<usize>| range.start as u64..range.end as u64;
    Some(Exports { entries: offsets(entries), names: offsets(start..end) })
}

/// Where the name of an entry is; `None` if it is no name, or the value is not in the image.
fn name_of(image: &[u8], entry: usize) -> Option<Range<usize>> {
    let target = |at: usize| {
        let distance = i32::from_le_bytes(*image.get(at..)?.first_chunk()?);
        at.checked_add_signed(distance as isize).filter(|target| *target < image.len())
    };
    target(entry)?;
    let start = target(entry + NAME)?;
    let length = memchr::memchr(0, image.get(start..)?.get(..LONGEST)?).filter(|length| *length > 0)?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    // A name may be the end of another one, which the linker has stored once.
    image.get(start..start + length)?.iter().all(is_name).then_some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with a table of so many entries at `at`, and its names behind; `init_task` is one of them.
    fn image(at: usize, count: usize) -> Vec<u8> {
        let mut image = vec![0xcc; at];
        let names: Vec<String> = (0..count)
            .map(|n| if n == count / 2 { "init_task".to_owned() } else { format!("export_{n}") })
            .collect();
        let mut name = count * ENTRY + 1;
        for (n, text) in names.iter().enumerate() {
            let place = n * ENTRY;
            let value = -(place as i32 + at as i32);
            image.extend(value.to_le_bytes());
            image.extend(((name - place - NAME) as i32).to_le_bytes());
            image.extend(0_i32.to_le_bytes());
            name += text.len() + 1;
        }
        image.push(0);
        names.iter().for_each(|text| image.extend(text.bytes().chain([0])));
        image.resize((image.len() + LONGEST).next_multiple_of(4), 0xcc);
        image
    }

    #[test]
    fn a_table_is_found_by_a_name_that_every_kernel_exports() {
        let image = image(0x1000, 700);
        let found = find(&image).unwrap();
        let end = 0x1000 + 700 * ENTRY as u64;
        assert_eq!(found.entries, 0x1000..end);
        let names = image.iter().rposition(|byte| *byte != 0xcc).unwrap() as u64 + 1;
        assert_eq!(found.names, end + 1..names);
    }

    #[test]
    fn small_tables_and_several_are_refused() {
        assert_eq!(find(&image(0x1000, FEWEST - 1)), None);
        assert_eq!(find(&[image(0x1000, 700), image(0x1000, 700)].concat()), None);
        assert_eq!(find(b""), None);
        assert_eq!(find(&[0; 10_000]), None);
    }
}
