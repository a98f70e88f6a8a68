//! The parts of a platform's stored form, and whether a stored form that was read can be used.

use super::{Apics, PcParts, Platform};
use crate::devices::virtio::{Block, Console, Entropy, Function, VirtioMmio};
use crate::devices::{
    AcpiPm, Cmos, DmaPair, FastA20, Fdc, FwCfg, Hpet, I8042, IoApic, LocalApic, PciBus, PicPair, Pit,
    PostCode, Stored, Uart, Vga,
};

/// The version of the platform's own fields: wires, pace of the serial ports, counts, requests to end.
const VERSION: u16 = 2;

fn version<T: Stored>() -> (&'static str, u16) {
    (T::NAME, T::VERSION)
}

/// Name and version of the stored form of each device.
pub(crate) fn versions() -> Vec<(&'static str, u16)> {
    vec![
        ("platform", VERSION),
        version::<Uart>(),
        version::<PicPair>(),
        version::<LocalApic>(),
        version::<IoApic>(),
        version::<Pit>(),
        version::<Cmos>(),
        version::<I8042>(),
        version::<PostCode>(),
        version::<FastA20>(),
        version::<Vga>(),
        version::<Fdc>(),
        version::<DmaPair>(),
        version::<AcpiPm>(),
        version::<PciBus>(),
        version::<Hpet>(),
        version::<FwCfg>(),
        version::<VirtioMmio>(),
        version::<Block>(),
        version::<Console>(),
        version::<Entropy>(),
    ]
}

impl Platform {
    /// The device, if any, whose state is impossible.
    pub(crate) fn unsound(&self) -> Option<&'static str> {
        fn look<T: Stored>(device: &T) -> Option<&'static str> {
            (!device.is_sound()).then_some(T::NAME)
        }
        let apics = |a: &Apics| look(&a.local).or_else(|| look(&a.io));
        let pc = |pc: &PcParts| {
            let virtio = |device: &VirtioMmio| {
                look(device).or_else(|| match device.function() {
                    Function::Block(block) => look(block),
                    Function::Console(console) => look(console),
                    Function::Entropy(entropy) => look(entropy),
                })
            };
            look(&pc.pm)
                .or_else(|| look(&pc.pci))
                .or_else(|| look(&pc.hpet))
                .or_else(|| pc.virtio.iter().find_map(|attached| virtio(&attached.device)))
        };
        None.or_else(|| look(&self.com1.uart))
            .or_else(|| look(&self.com2.uart))
            .or_else(|| look(&self.wires.pics))
            .or_else(|| self.wires.apics.as_ref().and_then(apics))
            .or_else(|| look(&self.pit))
            .or_else(|| look(&self.cmos))
            .or_else(|| look(&self.keyboard))
            .or_else(|| look(&self.post))
            .or_else(|| look(&self.fast_a20))
            .or_else(|| look(&self.vga))
            .or_else(|| look(&self.floppy))
            .or_else(|| look(&self.dma))
            .or_else(|| self.pc.as_ref().and_then(pc))
    }

    /// Whether it has the devices that `machine` has, at the same places.
    pub(crate) fn has_devices_of(&self, machine: &Platform) -> bool {
        let windows = |p: &Platform| {
            let attached = p.pc.iter().flat_map(|pc| &pc.virtio);
            attached.map(|a| (a.window, std::mem::discriminant(a.device.function()))).collect::<Vec<_>>()
        };
        let irqs = |p: &Platform| (p.com1.irq, p.com2.irq);
        self.pc.is_some() == machine.pc.is_some()
            && self.wires.apics.is_some() == machine.wires.apics.is_some()
            && windows(self) == windows(machine)
            && irqs(self) == irqs(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::virtio::DiskImage;
    use crate::platform::PlatformConfig;

    fn pc() -> Platform {
        let disk = Some(DiskImage::from_bytes(&[7; 8192]).unwrap());
        Platform::new(&PlatformConfig { disk, console: true, entropy: true, ..PlatformConfig::pc(64 << 20) })
    }

    fn hash(platform: &Platform) -> u64 {
        let mut h = std::collections::hash_map::DefaultHasher::new();
        platform.hash_state(&mut h);
        std::hash::Hasher::finish(&h)
    }

    #[test]
    fn every_device_comes_back_from_its_stored_form() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        for minimal in [false, true] {
            let mut p = if minimal { Platform::new(&PlatformConfig::minimal(64 << 20)) } else { pc() };
            for n in 0..4000u64 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let port = [0x20, 0x40, 0x60, 0x70, 0xa0, 0x3c0, 0x3d4, 0x3f0, 0x3f8, 0x600]
                    [(seed % 10) as usize]
                    + (seed >> 8 & 7) as u16;
                p.port_write(port, 1, (seed >> 16) as u32 & 0xff, n * 1000);
                p.advance(n * 1000 + 500);
                if n % 100 == 0 {
                    let bytes = postcard::to_stdvec(&p).unwrap();
                    let mut back: Platform = postcard::from_bytes(&bytes).unwrap();
                    assert_eq!((back.unsound(), back.has_devices_of(&p)), (None, true));
                    assert_eq!(hash(&back), hash(&p));
                    assert_eq!(postcard::to_stdvec(&back).unwrap(), bytes);
                    let state = back.clone();
                    back = p.clone();
                    back.restore(&state);
                    assert_eq!(hash(&back), hash(&p));
                    p = back;
                }
            }
        }
    }

    /// The stored form of each device in a fixed state. A line that changes needs a higher version of that device, unless
    /// only the fixed state has changed.
    #[test]
    fn a_stored_form_that_changes_has_a_new_version() {
        fn form<T: Stored>(device: &T) -> String {
            let bytes = postcard::to_stdvec(device).unwrap();
            format!("{} {}: {} {:016x}", T::NAME, T::VERSION, bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes))
        }
        let p = pc();
        let (pc, apics) = (p.pc.as_ref().unwrap(), p.wires.apics.as_ref().unwrap());
        let mut forms = vec![
            form(&p.com1.uart),
            form(&p.wires.pics),
            form(&apics.local),
            form(&apics.io),
            form(&p.pit),
            form(&p.cmos),
            form(&p.keyboard),
            form(&p.post),
            form(&p.fast_a20),
            form(&p.vga),
            form(&p.floppy),
            form(&p.dma),
            form(&pc.pm),
            form(&pc.pci),
            form(&pc.hpet),
            form(&pc.fw_cfg),
        ];
        for attached in &pc.virtio {
            forms.push(form(&attached.device));
            forms.push(match attached.device.function() {
                Function::Block(block) => form(block),
                Function::Console(console) => form(console),
                Function::Entropy(entropy) => form(entropy),
            });
        }
        insta::assert_snapshot!(forms.join("\n"));
    }
}
