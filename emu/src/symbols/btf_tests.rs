//! BTF written here, and every way to damage it.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::symbols::{CType, TypeInfo};

/// Types, then strings.
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], count: 0 }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// Name, kind, kind_flag, size or type, number of entries, words after it.
    fn put(&mut self, name: &str, kind: u32, flag: bool, value: u32, entries: u32, words: &[u32]) -> u32 {
        let name = self.string(name);
        for word in [name, u32::from(flag) << 31 | kind << 24 | entries, value].iter().chain(words) {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn structure(&mut self, name: &str, size: u32, flag: bool, members: &[(&str, u32, u32)]) -> u32 {
        let words: Vec<u32> =
            members.iter().flat_map(|(name, id, place)| [self.string(name), *id, *place]).collect();
        self.put(name, 4, flag, size, members.len() as u32, &words)
    }

    fn build(&self) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        let len = self.types.len() as u32;
        for word in [24, 0, len, len, self.strings.len() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}

fn sample() -> Writer {
    let mut to = Writer::new();
    let int = to.put("int", 1, false, 4, 0, &[0x0100_0020]);
    let pid_t = to.put("pid_t", 8, false, int, 0, &[]);
    let chars = to.put("", 3, false, 0, 0, &[int, int, 16]);
    let inner = to.structure("", 24, false, &[("start", int, 0), ("end", pid_t, 64)]);
    let flags = to.structure("flags", 4, true, &[("low", int, 3 << 24), ("high", int, 5 << 24 | 3)]);
    let task = to.structure(
        "task",
        200,
        false,
        &[("pid", pid_t, 32), ("", inner, 128), ("comm", chars, 512), ("bits", flags, 1024)],
    );
    let constant = to.put("", 10, false, task, 0, &[]);
    let pointer = to.put("", 2, false, constant, 0, &[]);
    let (name, other) = (to.string("task"), to.string("count"));
    let prototype = to.put("", 13, false, int, 3, &[name, pointer, other, pid_t, 0, 0]);
    to.put("wake", 12, false, prototype, 1, &[]);
    to
}

#[test]
fn members_and_parameters_are_found() {
    let btf = Btf::parse(&sample().build(), Width::Bits64).unwrap();
    let at = |path: &str| btf.member("task", path).map(|member| (member.offset(), member.size));
    assert_eq!(at("pid"), Some((4, Some(4))));
    assert_eq!(at("end"), Some((24, Some(4))), "through an anonymous member");
    assert_eq!(at("comm"), Some((64, Some(64))));
    let high = btf.member("task", "bits.high").unwrap();
    assert_eq!((high.bit_offset, high.bits), (1027, Some(5)));
    assert_eq!((at("none"), at("pid.none"), at("")), (None, None, None));
    assert_eq!((btf.size_of("task"), btf.size_of("tas")), (Some(200), None));
    let shown: Vec<String> = btf
        .parameters("wake")
        .unwrap()
        .iter()
        .map(|parameter| format!("{} {}", parameter.type_name, parameter.name))
        .collect();
    assert_eq!(shown, ["const struct task * task", "pid_t count", "... "]);
    assert_eq!(btf.functions().count(), 1);
    assert!(btf.parameters("sleep").is_none());
}

#[test]
fn damage_is_named() {
    let good = sample().build();
    let sentence = |bytes: &[u8]| Btf::parse(bytes, Width::Bits64).unwrap_err().to_string();
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        sentence(&bad)
    };
    assert_eq!(with(0, 0), "this is not BTF: it begins with 0xeb00; it must be 0xeb9f");
    assert_eq!(with(2, 2), "the BTF version is 2; it must be 1");
    assert!(with(15, 0x7f).starts_with("BTF is truncated or damaged: its type section ends at 0x7f"));
    assert!(with(23, 0xff).contains("string section"));
    assert!(with(24 + 7, 0x1f).contains("type 1 at offset 0x18 has a kind that is not one of 1 to 19"));
    for len in 0..good.len() {
        assert!(Btf::parse(&good[..len], Width::Bits64).is_err(), "{len}");
    }
}

#[test]
fn circles_end() {
    let mut to = Writer::new();
    to.put("loop", 8, false, 1, 0, &[]);
    to.put("", 2, false, 2, 0, &[]);
    to.put("", 3, false, 0, 0, &[3, 3, u32::MAX]);
    to.structure("round", 8, false, &[("", 4, 0), ("", 4, 0), ("", 4, 0), ("a", 3, 0), ("l", 1, 0)]);
    let prototype = to.put("", 13, false, 0, 2, &[0, 2, 0, 99]);
    to.put("f", 12, false, prototype, 0, &[]);
    to.put("g", 12, false, 6, 0, &[]);
    let btf = Btf::parse(&to.build(), Width::Bits32).unwrap();
    assert_eq!(btf.member("round", "none"), None);
    assert_eq!(btf.member("round", "l.x"), None);
    assert_eq!(btf.parameters("f").unwrap()[1].type_name, "?");
    assert!(btf.parameters("g").is_none());
}

#[test]
fn no_flip_panics() {
    let good = sample().build();
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            if let Ok(btf) = Btf::parse(&bad, Width::Bits64) {
                let _ = (btf.member("task", "bits.high"), btf.functions().count(), btf.size_of("task"));
            }
        }
    }
}

/// Enumerations of a kernel before and since the flag that says whether they are signed.
#[test]
fn enumerations_are_signed_as_their_file_says_it() {
    let described = |with_flags: bool| {
        let mut to = Writer::new();
        let items = |to: &mut Writer, values: &[(&str, u32)]| -> Vec<u32> {
            values.iter().flat_map(|(name, value)| [to.string(name), *value]).collect()
        };
        let high = items(&mut to, &[("FORK", 1), ("EXIT", 0x8000_0000)]);
        let high = to.put("what", 6, false, 4, 2, &high);
        let below = items(&mut to, &[("BAD", -5i32 as u32), ("GOOD", 200)]);
        let below = to.put("sign", 6, with_flags, 4, 2, &below);
        let btf = Btf::parse(&to.build(), Width::Bits64).unwrap();
        [high, below].map(|id| match btf.describe(id) {
            CType::Enum { signed, items, .. } => {
                (signed, items.into_iter().map(|(_, value)| value).collect())
            }
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(described(true), [(false, vec![1, 0x8000_0000]), (true, vec![-5, 200])]);
    // Then all were `__s32`; what has no negative value is unsigned, as in C.
    assert_eq!(described(false), [(true, vec![1, -0x8000_0000]), (true, vec![-5, 200])]);
}

/// Bit-fields of a file without flags of members: the integer says how many bits it has, and how many come before.
#[test]
fn bit_fields_are_found_in_their_old_form() {
    let mut to = Writer::new();
    let narrow = to.put("unsigned int", 1, false, 4, 0, &[5 << 16 | 3]);
    let id = to.structure("flags", 4, false, &[("low", narrow, 8)]);
    let btf = Btf::parse(&to.build(), Width::Bits64).unwrap();
    let CType::Composite { members: Some(members), .. } = btf.describe(id) else { panic!("no struct") };
    assert_eq!((members[0].bit_offset, members[0].bits), (13, Some(3)));
}
