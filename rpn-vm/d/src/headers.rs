//! The headers of C that D programs may include without having them: what they define is that of the guest, on every
//! host.

/// Name and text of each header.
const HEADERS: &[(&str, &str)] = &[
    ("endian.h", include_str!("../include/endian.h")),
    ("limits.h", include_str!("../include/limits.h")),
    ("stdint.h", include_str!("../include/stdint.h")),
    ("sys/types.h", include_str!("../include/sys/types.h")),
];

/// The text of a header of C, as `#include <endian.h>` names it.
///
/// ```
/// assert!(trapline_d::header("endian.h").is_some());
/// assert!(trapline_d::header("stdio.h").is_none());
/// ```
#[must_use]
pub fn header(name: &str) -> Option<&'static str> {
    HEADERS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}
