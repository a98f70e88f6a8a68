//! What the kernel's functions take, in the words of its types (BTF), or of its debugging information (DWARF) where it has
//! no types. For listings: handlers get arguments by their number.

use std::collections::BTreeMap;

use trapline_emu::symbols::{Btf, Parameter};
use trapline_interposer::Place;

use crate::provider::{Probe, declaration};
use crate::target::Target;

/// Says at each entry of a kernel function that fbt has found what it takes. Left alone are functions of which nothing
/// is known, and names that several functions have which take different things.
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

/// By name, without those that do not agree.
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
