//! One table of all sites: attaches probes to them, and arms and disarms them.
//!
//! A site is a physical address that is patched; a watch of execution is a site without a patch, and so is the pointer of
//! a macro-declared probe. Several probes may share a site, in order of insertion.
//! Invariant: a site is armed exactly while an enabled probe is on it.

mod displace;
mod site;
mod table;

pub use displace::{Way, way_of, why};

pub(crate) use displace::{Displaced, Op, emulate, is_repeated};
pub(crate) use site::{Change, Site, Stub, bytes_at};
pub(crate) use table::{SavedSites, SiteTable};
