//! The symbols and types in Debian's Linux kernels, compared with those that the kernels printed under qemu
//! (`scripts/linux-oracle`).

#![allow(clippy::unwrap_used, clippy::panic)]

use trapline_emu::load::Image;
use trapline_emu::symbols::{Btf, Symbols};
use trapline_os::Linux;
use trapline_tests::linux::{OTHER_RELEASES, unpack};
use trapline_tests::{guest, root};

/// A kernel of `.guests/`, the ELF file inside.
fn kernel(name: &str) -> Image {
    let file = std::fs::read(guest(name)).expect("run `make guests`");
    Image::parse(&unpack(&file).unwrap(), "vmlinux").unwrap()
}

/// `Linux version R ...` in the image.
fn release(image: &[u8]) -> String {
    let mark = b"Linux version ";
    let digits = |at: &usize| image.get(at + mark.len()).is_some_and(u8::is_ascii_digit);
    let places = (0..image.len()).filter(|at| image[*at..].starts_with(mark));
    let at = places.into_iter().find(digits).unwrap() + mark.len();
    image[at..].iter().take_while(|byte| **byte != b' ').map(|byte| char::from(*byte)).collect()
}

/// The row of the oracle for a release: number and CRC-32.
fn oracle(release: &str) -> Option<(usize, u32)> {
    let text = std::fs::read_to_string(root().join("guest-images/oracle/linux-kallsyms.tsv")).unwrap();
    let row = text.lines().find_map(|line| line.strip_prefix(release)?.strip_prefix('\t'))?;
    let (count, crc) = row.split_once('\t').unwrap();
    Some((count.parse().unwrap(), u32::from_str_radix(crc, 16).unwrap()))
}

/// Symbols, types and layout; the layout in BTF must agree with the initial data.
fn check(name: &str, has_btf: bool) {
    let image = kernel(name);
    let release = release(image.bytes());
    let listing = Symbols::kallsyms_listing(image.bytes()).unwrap();
    let mut crc = flate2::Crc::new();
    for (addr, name) in &listing {
        crc.update(format!("{addr:016x} {name}\n").as_bytes());
    }
    match oracle(&release) {
        Some(said) => assert_eq!((listing.len(), crc.sum()), said, "{release}"),
        // Debian's current kernel changes; another one must still be read whole.
        None => {
            assert!(listing.len() > 40_000, "{release}: {}; scripts/linux-oracle knows more", listing.len())
        }
    }
    let symbols = Symbols::from_kallsyms(image.bytes(), "vmlinux").unwrap();
    let btf = Btf::from_vmlinux(image.bytes()).unwrap();
    assert_eq!(btf.is_some(), has_btf);
    let inferred = match (Linux::find(image.plan(), &symbols, None), &btf) {
        (Ok(inferred), _) => inferred,
        // What a newer kernel without types no longer shows is refused, not guessed; its types show it.
        (Err(error), Some(btf)) => {
            assert!(!release.starts_with("5.") && !release.starts_with("6."), "{release}: {error}");
            return drop(Linux::find(image.plan(), &symbols, Some(btf)).unwrap());
        }
        (Err(error), None) => panic!("{release}: {error}"),
    };
    let lacks = inferred.lacks().map(ToString::to_string);
    let newer = "the kernel has no BTF, and only BTF shows how Linux from 6.2 on lays out files and mappings";
    assert_eq!(
        lacks.as_deref(),
        (!release.starts_with("5.") && !release.starts_with("6.1.")).then_some(newer),
        "{release}"
    );
    if let Some(btf) = &btf {
        assert_eq!(Linux::find(image.plan(), &symbols, Some(btf)).unwrap().as_inferred(), inferred);
        let names: Vec<String> =
            btf.parameters("do_sys_openat2").unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["dfd", "filename", "how"]);
    }
}

#[test]
fn guest_linux_of_other_releases_is_read() {
    for linux in &OTHER_RELEASES {
        check(&format!("linux-{}", linux.flavour), linux.arch == "amd64");
    }
}

#[test]
fn guest_linux_686_is_read() {
    check("linux-686", false);
}

#[test]
fn guest_linux_amd64_is_read() {
    check("linux-amd64", true);
}

#[test]
fn guest_linux_cloud_amd64_is_read() {
    check("linux-cloud-amd64", true);
}
