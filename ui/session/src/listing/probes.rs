//! Probes, as `dtrace -l` lists them, with their sites if wanted.

use serde::{Deserialize, Serialize};
use trapline_interposer::Place;
use trapline_providers::{Present, Probe, Site, Spot};
use trapline_trace::{HexStyle, hex};

use super::How;

/// A probe, and where its sites are now if the guest has run.
pub struct Listed {
    pub(super) probe: Probe,
    /// For each site.
    spots: Option<Vec<Vec<Spot>>>,
}

/// The probes; with `present`, those with a site in memory now.
pub fn there(found: Vec<Probe>, present: Option<&mut Present<'_>>) -> Vec<Listed> {
    let Some(present) = present else {
        return found.into_iter().map(|probe| Listed { probe, spots: None }).collect();
    };
    let mut there = Vec::new();
    for probe in found {
        let spots: Vec<Vec<Spot>> = probe.sites.iter().map(|site| present.spots(&site.place)).collect();
        // Timers and watches have no place and are always present.
        let nowhere = probe.sites.iter().any(|site| address(site).is_none());
        if nowhere || spots.iter().any(|spots| !spots.is_empty()) {
            there.push(Listed { probe, spots: Some(spots) });
        }
    }
    there
}

/// A heading and one line per probe, with one or more lines per site.
pub fn text(found: &[Listed], how: How) -> Vec<String> {
    let mut lines = vec![format!("{:>5} {:>10} {:>17} {:>33} NAME", "ID", "PROVIDER", "MODULE", "FUNCTION")];
    for Listed { probe, spots } in found {
        let name = &probe.name;
        lines.push(format!(
            "{:>5} {:>10} {:>17} {:>33} {}",
            probe.id, name.provider, name.module, name.function, name.name
        ));
        if !how.verbose && !how.opcode {
            continue;
        }
        for (n, site) in probe.sites.iter().enumerate() {
            match spots.as_ref().and_then(|spots| spots.get(n)) {
                None => lines.extend(address(site).map(|at| line(probe, site, Some(at), how, None))),
                Some(spots) => {
                    lines.extend(spots.iter().map(|spot| line(probe, site, spot.linear, how, Some(spot))));
                }
            }
        }
    }
    lines
}

/// A line of a site: `      0xc010116a  do_exit+0x0  0x55  push ebp; mov ebp,esp`.
fn line(probe: &Probe, site: &Site, at: Option<u64>, how: How, spot: Option<&Spot>) -> String {
    let digits = how.digits;
    let at = at.map_or_else(|| format!("{:digits$}", "-"), |at| format!("{at:#0digits$x}"));
    let within = site.within.as_ref().unwrap_or(&probe.name.function);
    let mut line = format!("      {at}  {within}+{:#x}", site.offset);
    if how.opcode {
        let now = spot.map_or_else(|| format!("{:#04x}", site.opcode), |spot| now(site, spot));
        line.push_str(&format!("  {now}"));
    }
    line.push_str(&format!("  {}{}", site.rule, arguments(site)));
    if let Some(process) = spot.and_then(|spot| spot.process.as_ref()) {
        line.push_str(&format!("  in process {} ({})", process.pid, process.name));
    }
    line
}

/// The present bytes of a site: the byte that loads see, the file's if it differs, and what fetches see if a probe is
/// armed.
fn now(site: &Site, spot: &Spot) -> String {
    let Some(first) = spot.data.first() else { return "not in memory".to_owned() };
    let is_word = matches!(
        site.place,
        Place::Pointer { .. }
            | Place::ModulePointer { .. }
            | Place::UserPointer { .. }
            | Place::Semaphore { .. }
    );
    if is_word {
        let value = spot.data.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        return format!("holds {value:#x}");
    }
    let mut text = format!("{first:#04x}");
    if *first != site.opcode {
        text.push_str(&format!(" ({:#04x} in the file)", site.opcode));
    }
    let differing = spot.data.iter().zip(&spot.code).rposition(|(data, code)| data != code);
    if let Some(code) = differing.and_then(|last| spot.code.get(..=last)) {
        text.push_str(&format!(" armed: {}", hex(code, HexStyle::Spaced)));
    }
    text
}

/// The known arguments at a site.
fn arguments(site: &Site) -> String {
    if site.shown.is_empty() { String::new() } else { format!("  ({})", site.shown.join(", ")) }
}

/// The linear address of a site by the files; for a kernel module and for a program's code the offset in the file, for a
/// program's data the linked address. `None` without a place in memory.
fn address(site: &Site) -> Option<u64> {
    match site.place {
        Place::Kernel { linear, .. } | Place::LockNop { linear, .. } | Place::Pointer { linear, .. } => {
            Some(linear)
        }
        Place::User { offset, .. }
        | Place::UserExit { offset, .. }
        | Place::IsEnabled { offset, .. }
        | Place::Module { offset, .. }
        | Place::ModulePointer { offset, .. } => Some(offset),
        Place::Semaphore { address, .. } | Place::UserPointer { address, .. } => Some(address),
        Place::Timer(_) | Place::Watch(_) | Place::Event(_) => None,
    }
}

/// A probe in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRow {
    /// Its identifier.
    pub id: u32,
    /// Its provider.
    pub provider: String,
    /// Its module.
    pub module: String,
    /// Its function.
    pub function: String,
    /// Its name.
    pub name: String,
    /// Its sites.
    pub sites: Vec<SiteRow>,
}

/// A site of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRow {
    /// Its linear address by the files; of a module its offset. None without a place in memory.
    pub address: Option<String>,
    /// Its offset in the function.
    pub offset: u64,
    /// Its first byte by the files.
    pub opcode: String,
    /// The rule by which it was found.
    pub rule: String,
    /// The known arguments there.
    pub arguments: Vec<String>,
    /// Where it is now, if the guest has run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub now: Option<Vec<SpotRow>>,
}

/// Where a site is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpotRow {
    /// Its linear address.
    pub address: Option<String>,
    /// The process that has it mapped.
    pub pid: Option<u32>,
    /// That process's name.
    pub process: Option<String>,
    /// Its bytes as loads see them, as hexadecimal digits.
    pub bytes: String,
    /// Its bytes as instruction fetches see them.
    pub fetched: String,
}

/// A probe as a row.
pub fn row(Listed { probe, spots }: &Listed) -> ProbeRow {
    let sites = probe.sites.iter().enumerate();
    let sites = sites.map(|(n, site)| site_row(site, spots.as_ref().and_then(|spots| spots.get(n))));
    let name = &probe.name;
    ProbeRow {
        id: probe.id,
        provider: name.provider.to_string(),
        module: name.module.to_string(),
        function: name.function.to_string(),
        name: name.name.to_string(),
        sites: sites.collect(),
    }
}

fn site_row(site: &Site, spots: Option<&Vec<Spot>>) -> SiteRow {
    SiteRow {
        address: address(site).map(|at| format!("{at:#x}")),
        offset: site.offset,
        opcode: format!("{:#04x}", site.opcode),
        rule: site.rule.to_string(),
        arguments: site.shown.iter().map(ToString::to_string).collect(),
        now: spots.map(|spots| spots.iter().map(spot_row).collect()),
    }
}

fn spot_row(spot: &Spot) -> SpotRow {
    SpotRow {
        address: spot.linear.map(|at| format!("{at:#x}")),
        pid: spot.process.as_ref().map(|process| process.pid),
        process: spot.process.as_ref().map(|process| process.name.to_string()),
        bytes: hex(&spot.data, HexStyle::Pairs),
        fetched: hex(&spot.code, HexStyle::Pairs),
    }
}
