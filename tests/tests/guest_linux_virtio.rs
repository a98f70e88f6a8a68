//! The virtio console and the source of entropy on the PCI bus, as drivers of Debian's kernels use them.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::cli::trapline;
use tempfile::TempDir;
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// What the guest's console has after the kernel's own messages.
const BEGIN: &str = "virtio: begin";
/// A line that fills several descriptors of the driver.
const LONG: usize = 200;

/// These modules of a kernel, each after what it needs. What is built into the kernel is left out.
fn with_dependencies(linux: &Linux, modules: &[&str]) -> Vec<String> {
    let table = guest(&format!("modules-{}/modules.dep", linux.flavour));
    let table = std::fs::read_to_string(table).unwrap();
    let mut all: Vec<String> = Vec::new();
    for module in modules {
        let line = table.lines().find_map(|line| line.strip_prefix(&format!("{module}.ko:")));
        let Some(needs) = line else { continue };
        let needs = needs.split_whitespace().rev().map(|file| file.trim_end_matches(".ko"));
        for name in needs.chain([*module]) {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        }
    }
    all
}

/// What the guest says when it has used both devices.
fn uses(flavour: &str, bus: &str) -> Vec<String> {
    let linux = Linux::of(flavour).unwrap();
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let modules = with_dependencies(linux, &["virtio_mmio", "virtio_pci", "virtio-rng", "virtio_console"]);
    let loading: String = modules.iter().map(|module| format!("insmod /{module}.ko\n")).collect();
    let script = [
        "export PATH=/bin\nmount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs devtmpfs /dev\n",
        &loading,
        &format!("echo {BEGIN}\n"),
        "cd /sys/bus/virtio/devices\n\
         for d in *; do echo $(cat $d/device) $(basename $(readlink $d/driver)) $(basename $(readlink -f $d/../driver)); done\n\
         cat /sys/class/misc/hw_random/rng_current\n\
         for n in 1 2; do head -c 16 /dev/hwrng | hexdump -v -e '16/1 \"%02x\" \"\\n\"'; done\n\
         head -c 200000 /dev/hwrng | wc -c\n\
         head -c 200000 /dev/hwrng | gzip | wc -c\n\
         (echo 'hvc asks'; read answer; echo \"hvc heard $answer\") < /dev/hvc0 > /dev/hvc0\n\
         (echo 'hvc asks again'; read answer; echo $answer | wc -c) < /dev/hvc0\n\
         seq 1 3000 > /dev/hvc0\n\
         grep -c '[1-9][0-9]* .* virtio[0-9]' /proc/interrupts\n\
         poweroff -f\n",
    ];
    let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
    let initrd = linux.image(here, &modules, &[], &script.concat()).unwrap().display().to_string();
    let typed = format!(
        "on console \"hvc asks\" type hvc0 \"six words\\n\"\non console \"asks again\" type hvc0 \"{}\\n\"\n",
        "x".repeat(LONG)
    );
    std::fs::write(here.join("s.script"), typed).unwrap();
    let kernel = guest(&format!("linux-{flavour}"));
    let quick = format!("{QUICK} quiet");
    let ran = trapline(
        here,
        &[
            ["run", &kernel, "--initrd", &initrd, "--script", "s.script", "--append", &quick].as_slice(),
            &["--virtio", bus, "--virtio-rng", "--virtio-console"],
            &["--console", "console", "--limit-insns", "20G"],
        ]
        .concat(),
    );
    let console = String::from_utf8_lossy(&std::fs::read(here.join("console")).unwrap()).replace('\r', "");
    assert_eq!(ran.code, 0, "{flavour}: {}\n{console}", ran.err);
    let (_, said) =
        console.split_once(&format!("{BEGIN}\n")).unwrap_or_else(|| panic!("{flavour}: {console}"));
    said.lines().map(str::to_owned).collect()
}

/// Both work, and the bytes are those of the other bus and of the next run.
fn are_used(flavours: &[&str]) {
    for flavour in flavours {
        let mut entropy: Option<Vec<String>> = None;
        for (bus, driver) in [("pci", "virtio-pci"), ("mmio", "virtio-mmio")] {
            let said = uses(flavour, bus);
            let text = format!("{flavour}, {bus}: {}", said.join("\n"));
            let devices = [
                format!("0x0003 virtio_console {driver}"),
                format!("0x0004 virtio_rng {driver}"),
                "virtio_rng.0".to_owned(),
            ];
            assert_eq!(said[..3], devices, "{text}");
            // The first bytes of two reads.
            let bytes = said[3..5].to_vec();
            assert!(bytes[0] != bytes[1] && bytes.iter().all(|line| line.len() == 32), "{text}");
            let first = entropy.get_or_insert_with(|| bytes.clone());
            assert_eq!(*first, bytes, "{text}");
            assert_eq!(said[5], "200000", "{text}");
            assert!(said[6].parse::<u32>().unwrap() > 200_000, "{text}");
            assert!(said.iter().any(|line| line == "hvc heard six words"), "{text}");
            assert!(said.iter().any(|line| *line == (LONG + 1).to_string()), "{text}");
            let numbers: Vec<String> = (1..=3000).map(|n| n.to_string()).collect();
            let from = said.iter().position(|line| line == "1").unwrap();
            assert_eq!(said[from..from + 3000], numbers, "{text}");
            // Each device has its interrupt.
            assert_eq!(said[from + 3000], "2", "{text}");
        }
    }
}

#[test]
fn guest_linux_uses_the_console_and_the_entropy_of_the_pci_bus() {
    are_used(&["amd64"]);
}

#[test]
fn guest_linux_of_any_release_uses_the_console_and_the_entropy_of_the_pci_bus_at_length() {
    are_used(&[
        "5.10-686",
        "5.10-cloud-amd64",
        "686",
        "6.12-amd64",
        "6.12-cloud-amd64",
        "testing-cloud-amd64",
    ]);
}
