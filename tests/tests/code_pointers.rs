//! Names of addresses of code against `nm`, at random addresses: an address is named by the symbol of its byte, a return
//! address by that of the byte before it.

#![allow(clippy::unwrap_used)]

use crate::cli::{finish, folder, patient};
use trapline_session::{CodePointer, GuestBuilder};

/// Addresses that are looked up in each kernel.
const LOOKED_UP: u64 = 10_000;

#[test]
fn ten_thousand_addresses_and_return_addresses_have_the_names_that_nm_has() {
    for name in ["ia32", "x86_64"] {
        let guest = GuestBuilder::embedded(name).open().unwrap();
        let target = guest.target();
        let here = folder(&[("kernel", target.image().bytes())]);
        let mut nm = patient("nm");
        nm.args(["-n", "-S", "--defined-only"]).arg(here.path().join("kernel"));
        let out = finish(nm).out;
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let functions: Vec<(u64, u64, &str)> = (out.lines().map(|line| line.split(' ').collect::<Vec<_>>()))
            .filter(|words| words.len() == 4 && matches!(words[2], "t" | "T"))
            .map(|words| (number(words[0]), number(words[1]), words[3]))
            .collect();
        let (first, last) = (functions[0].0, functions[functions.len() - 1].0);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..LOOKED_UP {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of them at the end of a function, where the two differ.
            let any = first + (random >> 24) % (last - first);
            let end = functions[(random >> 16) as usize % functions.len()];
            let address = if random >> 63 == 0 { any } else { end.0 + end.1 };
            for (pointer, byte) in
                [(CodePointer::At(address), address), (CodePointer::Return(address), address - 1)]
            {
                let of = |(from, size, _): &&(u64, u64, &str)| (*from..from + size).contains(&byte);
                let wanted: Vec<String> = (functions.iter().filter(of))
                    .map(|(from, _, name)| match address - from {
                        0 => (*name).to_owned(),
                        offset => format!("{name}+{offset:#x}"),
                    })
                    .collect();
                if !wanted.is_empty() {
                    let found = target.kernel_symbol(pointer).unwrap();
                    assert!(wanted.contains(&found), "{name}: {pointer:x?} is {found}, not {wanted:?}");
                }
            }
        }
    }
}
