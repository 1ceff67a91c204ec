// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter as the tool uses it: what QEMU's plugin is told, and what it reported.

pub mod reading;

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

/// What the plugin is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program counters of the guest. Without any, whatever runs below the hypervisor's privilege is the guest.
    pub guest: Vec<Range<u64>>,
    /// Whether the instructions of one typical visit of each group are reported, too.
    pub trace: bool,
}

impl Options {
    /// The value of QEMU's option `-plugin`; the reading goes to `out`.
    pub fn argument(&self, library: &Path, out: &Path) -> OsString {
        // A comma ends a value of QEMU's; two are one.
        let path = |path: &Path| path.to_string_lossy().replace(',', ",,");
        let mut text = format!("{},out={}", path(library), path(out));
        for range in &self.guest {
            text.push_str(&format!(",guest={:#x}-{:#x}", range.start, range.end));
        }
        if self.trace {
            text.push_str(",trace=on");
        }
        text.into()
    }
}
