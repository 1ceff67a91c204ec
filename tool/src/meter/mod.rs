// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter as the tool uses it: what QEMU's plugin is told, and what it reported.

pub mod command;
pub mod fold;
pub mod reading;
pub mod symbols;
mod table;

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use crate::qemu::as_value;

/// What the plugin is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program counters of the guest. Without any, whatever runs below the hypervisor's privilege is the guest.
    pub guest: Vec<Range<u64>>,
    /// Whether the instructions of one typical visit of each group are reported, too.
    pub trace: bool,
    /// Whether all instructions of the whole run are counted, and nothing else.
    pub total: bool,
}

impl Options {
    /// The value of QEMU's option `-plugin`; the reading goes to `out`.
    pub fn argument(&self, library: &Path, out: &Path) -> OsString {
        let mut text = format!("{},out={}", as_value(library), as_value(out));
        for range in &self.guest {
            text.push_str(&format!(",guest={:#x}-{:#x}", range.start, range.end));
        }
        if self.trace {
            text.push_str(",trace=on");
        }
        if self.total {
            text.push_str(",total=on");
        }
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_plugin_is_told() {
        let options = Options { guest: vec![0x8000_0000..0x8100_0000, 0..0x10], trace: true, total: false };
        let argument = options.argument(Path::new("a,b/meter.so"), Path::new("out.json"));
        let expected = "a,,b/meter.so,out=out.json,guest=0x80000000-0x81000000,guest=0x0-0x10,trace=on";
        assert_eq!(argument, expected);
        let total = Options { total: true, ..Options::default() };
        assert_eq!(total.argument(Path::new("m"), Path::new("o")), "m,out=o,total=on");
    }
}
