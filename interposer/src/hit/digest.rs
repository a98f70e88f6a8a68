//! A digest of a program: its handlers and the places of its probe points.
//!
//! It shows whether a recompiled program equals the stored one: another guest file, another kernel or other options
//! would change its places or handlers.

use crate::d::DSetup;
use crate::model::{Address, Definition, Probe};
use std::fmt::{self, Write};
use std::sync::Arc;
use trapline_emu::symbols::UserModule;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Makes digests; caches those of the last files, since many probe points share a file.
#[derive(Default)]
pub(super) struct Digests {
    files: Vec<(Arc<[u8]>, u64)>,
}

/// Text that is hashed.
struct Hashed(Xxh3);

impl Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Digests {
    /// The digest of a program.
    pub fn of(&mut self, definition: &Definition) -> u64 {
        let mut text = Hashed(Xxh3::new());
        // Hashing cannot fail.
        let _ = self.write(definition, &mut text);
        text.0.digest()
    }

    fn write(&mut self, definition: &Definition, to: &mut Hashed) -> fmt::Result {
        let Definition { name, module, id, vars, gvars, probes, tellers: _, d } = definition;
        write!(to, "{name:?} {module:?} {id} {vars} {gvars}")?;
        if let Some(DSetup { tables, limits, output, panics: _, drop_tags, clauses: _ }) = d.as_deref() {
            write!(to, "\n{tables:?} {limits:?} {output:?} {drop_tags}")?;
        }
        let mut handler = None;
        for probe in probes {
            // Most probe points of a program share their handler.
            if handler.is_none_or(|last| !Arc::ptr_eq(last, &probe.handler)) {
                write!(to, "\n{:?} {:?}", probe.handler.limits(), probe.handler.code())?;
                handler = Some(&probe.handler);
            }
            let Probe { ignore, major, minor, logonfault, at_call, answers, .. } = probe;
            write!(
                to,
                "\n{ignore} {} {major} {minor} {logonfault} {at_call} {answers} ",
                probe.rest.maxhits
            )?;
            self.write_place(probe, to)?;
        }
        Ok(())
    }

    fn write_place(&mut self, probe: &Probe, to: &mut Hashed) -> fmt::Result {
        match probe.place.address() {
            Address::Patch { linear, paddr, patch } => write!(to, "patch {linear} {paddr} {patch}"),
            Address::Program { module, offset } => {
                let after = probe.place.runs_after();
                write!(to, "program {} {:x} {offset} {after}", module.name(), self.file(module))
            }
            Address::Module { module, offset } => {
                write!(to, "module {} {:x} {offset}", module.name(), self.file(module.file()))
            }
            Address::Pointer { linear, paddr, wide } => write!(to, "pointer {linear} {paddr} {wide}"),
            Address::ModulePointer { module, offset, wide } => {
                let file = self.file(module.file());
                write!(to, "module pointer {} {file:x} {offset} {wide}", module.name())
            }
            Address::Word { module, address, pointer } => {
                write!(to, "word {} {:x} {address} {pointer:?}", module.name(), self.file(module))
            }
            Address::Watch(watch) => write!(to, "watch {watch:?}"),
            Address::Timer(timer) => write!(to, "timer {timer:?}"),
            Address::Event => write!(to, "event"),
        }
    }

    /// The digest of a file.
    fn file(&mut self, file: &UserModule) -> u64 {
        let bytes = file.shared_bytes();
        if let Some((_, digest)) = self.files.iter().rev().find(|(known, _)| Arc::ptr_eq(known, &bytes)) {
            return *digest;
        }
        let digest = xxh3_64(&bytes);
        self.files.push((bytes, digest));
        digest
    }
}
