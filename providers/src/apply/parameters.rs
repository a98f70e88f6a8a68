//! The parameters of the kernel's functions, from its types (BTF) or, without those, from its debugging information
//! (DWARF). Only for listings: handlers use arguments by number.

use std::collections::BTreeMap;

use trapline_emu::symbols::{Btf, Parameter};
use trapline_interposer::Place;

use crate::provider::{Probe, declaration};
use crate::target::Target;

/// Adds the parameters to each entry probe of fbt. Functions without known parameters are left unchanged, and so are
/// names shared by functions with different parameters.
pub fn show_parameters<'a>(target: &Target, found: impl Iterator<Item = &'a mut Probe>) {
    let mut entries: BTreeMap<String, Vec<&'a mut Probe>> = BTreeMap::new();
    let is_entry = |probe: &Probe| {
        let kernel = |place: &Place| matches!(place, Place::Kernel { .. });
        *probe.name.provider == *"fbt"
            && *probe.name.name == *"entry"
            && probe.sites.iter().all(|site| kernel(&site.place))
    };
    for probe in found.filter(|probe| is_entry(probe)) {
        entries.entry(probe.name.function.to_string()).or_default().push(probe);
    }
    if entries.is_empty() {
        return;
    }
    let known = match Btf::from_vmlinux(&target.image().plan().image) {
        Ok(Some(btf)) => one_of_each(btf.functions().filter(|(name, _)| entries.contains_key(name))),
        _ => one_of_each(target.lines().functions(|name| entries.contains_key(name)).into_iter()),
    };
    for (name, list) in known {
        let shown: Vec<String> = list.iter().map(declaration).collect();
        let probes = entries.get_mut(&name).into_iter().flatten();
        for site in probes.flat_map(|probe| probe.sites.iter_mut()) {
            site.shown.clone_from(&shown);
        }
    }
}

/// Parameters by name, without names whose functions differ.
fn one_of_each(all: impl Iterator<Item = (String, Vec<Parameter>)>) -> BTreeMap<String, Vec<Parameter>> {
    let mut found: BTreeMap<String, Option<Vec<Parameter>>> = BTreeMap::new();
    for (name, list) in all {
        let known = found.entry(name).or_insert_with(|| Some(list.clone()));
        if known.as_ref() != Some(&list) {
            *known = None;
        }
    }
    found.into_iter().filter_map(|(name, list)| Some((name, list?))).collect()
}
