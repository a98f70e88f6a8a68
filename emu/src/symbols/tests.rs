//! Symbols from generated files and, if present, GNU Mach.

use super::*;
use crate::load::testing::{TestElf, gnumach};

const FUNC: u8 = 0x12;
const LOCAL_FUNC: u8 = 0x02;
const OBJECT: u8 = 0x11;
const LABEL: u8 = 0x00;

fn sample(wide: bool) -> Symbols {
    let file = TestElf::kernel(wide, 0)
        .with_symbols(&[
            ("main.c", 0, 0, 0x04, 0xfff1),
            ("do_fork", 0x10_0010, 0x20, FUNC, 1),
            ("inner_label", 0x10_0018, 0, LABEL, 1),
            ("asm_entry", 0x10_0040, 0, FUNC, 1),
            ("__alias", 0x10_0060, 8, LOCAL_FUNC, 1),
            ("alias", 0x10_0060, 8, FUNC, 1),
            ("table", 0x10_0100, 0x10, OBJECT, 1),
            ("last", 0x10_0700, 0, FUNC, 1),
            ("constant", 0x1234, 0, 0x10, 0xfff1),
            ("undefined", 0, 0, FUNC, 0),
            ("twice", 0x10_0200, 4, LOCAL_FUNC, 1),
            ("twice", 0x10_0300, 4, LOCAL_FUNC, 1),
        ])
        .build();
    Symbols::from_elf(&file, "kernel").unwrap()
}

fn at(symbols: &Symbols, addr: u64) -> Option<String> {
    symbols.at(addr).map(|at| at.to_string())
}

#[test]
fn addresses_are_named() {
    for wide in [false, true] {
        let symbols = sample(wide);
        let shown = |addr: u64| at(&symbols, addr);
        assert_eq!(shown(0x10_0010).as_deref(), Some("do_fork"));
        assert_eq!(shown(0x10_0020).as_deref(), Some("do_fork+0x10"), "not the label inside it");
        assert_eq!(shown(0x10_0030), None, "between symbols");
        assert_eq!(shown(0x10_005f).as_deref(), Some("asm_entry+0x1f"), "ends at the next");
        assert_eq!(shown(0x10_0060).as_deref(), Some("alias"));
        assert_eq!(shown(0x10_07ff).as_deref(), Some("last+0xff"), "ends with its section");
        assert_eq!(shown(0x10_0800), None);
        assert_eq!(shown(0x1234), None, "a constant is no address");
        assert_eq!(shown(0), None);
        assert_eq!(shown(u64::MAX), None);
    }
}

#[test]
fn names_are_found() {
    let symbols = sample(false);
    assert_eq!(symbols.sole("inner_label").map(|s| s.addr), Some(0x10_0018));
    assert_eq!(symbols.sole("constant").map(|s| s.addr), Some(0x1234));
    assert_eq!(symbols.sole("Do_fork"), None);
    assert_eq!(symbols.sole("undefined"), None);
    assert_eq!(symbols.sole("main.c"), None);
    assert_eq!(symbols.all("twice").map(|s| s.addr).collect::<Vec<_>>(), [0x10_0200, 0x10_0300]);
    assert_eq!(symbols.sole("twice"), None, "two local symbols");
    assert_eq!(
        symbols.named("twice").one().unwrap_err().to_string(),
        "`twice` is ambiguous: 2 symbols have this name, at 0x100200, 0x100300"
    );
    assert_eq!(symbols.named("inner_label").one().unwrap().map(|s| s.addr), Some(0x10_0018));
    assert_eq!(symbols.named("undefined"), Named::Nothing);
    assert_eq!(
        symbols.names_at(0x10_0060).map(|s| s.name.as_ref()).collect::<Vec<_>>(),
        ["alias", "__alias"]
    );
    let functions: Vec<&str> = symbols.functions().map(|s| s.name.as_ref()).collect();
    assert_eq!(functions, ["do_fork", "asm_entry", "alias", "__alias", "twice", "twice", "last"]);
    assert_eq!(symbols.module(), "kernel");
}

#[test]
fn near_misses_are_suggested() {
    let symbols = sample(false);
    assert_eq!(symbols.near_misses("DO_FORK", 3), ["do_fork"]);
    assert_eq!(symbols.near_misses("do_frok", 3), ["do_fork"]);
    assert_eq!(symbols.near_misses("fork", 3), ["do_fork"]);
    assert_eq!(symbols.near_misses("alia", 1), ["alias"]);
    assert!(symbols.near_misses("quite_different", 3).is_empty());
    assert!(symbols.near_misses("", 3).is_empty());
}

#[test]
fn system_map_and_merge() {
    let text = b"00001234 A constant2\n00100010 T do_fork\n00100400 t static_one\n00100410 D data\n         U gone\n\n\
        00100500 t mod_fn\t[e1000]\n";
    let map = Symbols::from_system_map(text, "kernel").unwrap();
    assert_eq!(at(&map, 0x10_040f).as_deref(), Some("static_one+0xf"));
    assert_eq!(at(&map, 0x10_0500).as_deref(), Some("mod_fn"));
    assert_eq!(map.sole("do_fork").map(|s| (s.size, s.binding)), Some((0x3f0, Binding::Global)));
    let merged = map.merged(sample(false));
    assert_eq!(merged.sole("do_fork").map(|s| s.size), Some(0x20), "the size of the file is kept");
    assert_eq!(merged.all("do_fork").count(), 1);
    assert!(merged.sole("static_one").is_some() && merged.sole("last").is_some());
}

#[test]
fn bad_maps() {
    let sentence = |text: &[u8]| Symbols::from_system_map(text, "k").unwrap_err().to_string();
    assert_eq!(
        sentence(b"00100010 T ok\nnonsense\n"),
        "line 2 of the System.map is \"nonsense\"; it must be ADDRESS TYPE NAME"
    );
    assert!(sentence(b"00100010 TT name\n").contains("line 1"));
    assert!(sentence(b"g T name\n").contains("line 1"));
    assert_eq!(sentence(b"ab\xff"), "byte 2 of the System.map is not UTF-8 text");
    assert!(Symbols::from_system_map(b"", "k").unwrap().is_empty());
}

/// `__pfx_NAME` right before the function NAME is no function; one before another function is.
#[test]
fn padding_before_functions_is_no_function() {
    let map = b"1000 t __pfx_first\n1010 t first\n1010 T also\n1020 t __pfx_other\n1030 t third\n\
                1040 t __pfx_last\n1040 t __pfx_data\n1050 d data\n";
    let symbols = Symbols::from_system_map(map, "k").unwrap();
    let functions: Vec<&str> = symbols.functions().map(|symbol| symbol.name.as_ref()).collect();
    assert_eq!(functions, ["also", "first", "__pfx_other", "third", "__pfx_data", "__pfx_last"]);
    assert_eq!(symbols.sole("__pfx_first").map(|symbol| (symbol.addr, symbol.size)), Some((0x1000, 0x10)));
    assert_eq!(at(&symbols, 0x1008).as_deref(), Some("__pfx_first+0x8"));
}

#[test]
fn nested_and_hostile_sizes() {
    let symbols = Symbols::from_elf(
        &TestElf::kernel(true, 0)
            .with_symbols(&[
                ("outer", 0x1000, 0x100, FUNC, 1),
                ("nested", 0x1010, 0x10, FUNC, 1),
                ("huge", 0x2000, u64::MAX, FUNC, 1),
            ])
            .build(),
        "m",
    )
    .unwrap();
    assert_eq!(at(&symbols, 0x1015).as_deref(), Some("nested+0x5"));
    assert_eq!(at(&symbols, 0x1030).as_deref(), Some("outer+0x30"));
    assert_eq!(at(&symbols, 0x9000).as_deref(), Some("huge+0x7000"));
}

#[test]
fn user_module_offsets() {
    let mut elf = TestElf::kernel(true, 0x40_0000).with_symbols(&[("main", 0x50_0010, 4, FUNC, 1)]);
    elf.kind = 3;
    let file = elf.build();
    let module = UserModule::parse(&file, "appln").unwrap();
    assert_eq!((module.name(), module.is_dynamic(), module.segments().len()), ("appln", true, 1));
    assert_eq!(module.symbol_offset("main"), Some(4096 + 0x10));
    assert_eq!(module.offset_to_vaddr(4096 + 0x10), Some(0x50_0010));
    assert_eq!(module.offset_to_vaddr(0), None);
    assert_eq!(module.vaddr_to_offset(0x50_0000 + 6000), None, "bss is in no file");
    assert_eq!(module.symbol_at_offset(4096 + 0x12).unwrap().to_string(), "main+0x2");
    assert_eq!((module.is_executable_offset(4096), module.is_executable_offset(0)), (Some(true), None));
    assert_eq!(module.pages().map(|(_, page)| page.len()).sum::<usize>(), file.len());
    assert_eq!(module.page(1).map(|page| page[0]), Some(0xf4));
    assert_eq!(module.page(usize::MAX), None);
    assert_eq!(module.bytes_at(4096, 2), Some(&[0xf4, 0x90][..]));
    assert_eq!(module.bytes_at(u64::MAX, 2), None);
    for len in 0..file.len() {
        assert!(UserModule::parse(&file[..len], "cut").is_err(), "{len}");
    }
}

#[test]
fn guest_gnu_mach() {
    let file = gnumach();
    let bytes = crate::load::unpack(&file).unwrap();
    let symbols = Symbols::from_elf(&bytes, "gnumach").unwrap();
    let entries = |sized: bool| {
        let functions = symbols.functions().filter(|symbol| symbol.sized || !sized);
        functions.map(|symbol| symbol.addr).collect::<std::collections::BTreeSet<u64>>().len()
    };
    assert_eq!((entries(true), entries(false)), (2653, 2712), "as readelf counts them");
    let panic = symbols.sole("Panic").or_else(|| symbols.sole("panic")).unwrap();
    assert_eq!(at(&symbols, panic.addr + 0x10), Some(format!("{}+0x10", panic.name)));
    assert!(symbols.near_misses("thread_creat", 5).contains(&"thread_create"));
}
