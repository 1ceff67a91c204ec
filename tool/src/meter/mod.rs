// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter as the tool uses it: what QEMU's plugin is told, and what it reported.

pub(crate) mod command;
pub(crate) mod fold;
mod placing;
pub mod reading;
pub(crate) mod symbols;
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
    /// The VMID of a virtual machine that belongs to the hypervisor, and is outside the guest.
    pub host: Option<u16>,
    /// Where services, as they are linked, copy bytes of guests, which is counted apart.
    pub copy: Option<Range<u64>>,
    /// Where a hypervisor begins whose boot is to be counted: its instructions from there to the first one of a guest.
    pub boot: Option<u64>,
    /// Whether the instructions of one typical visit of each group are reported, too.
    pub trace: bool,
    /// Whether the lines and pages that visits touch are counted.
    pub footprint: bool,
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
        if let Some(host) = self.host {
            text.push_str(&format!(",host={host}"));
        }
        if let Some(copy) = &self.copy {
            text.push_str(&format!(",copy={:#x}-{:#x}", copy.start, copy.end));
        }
        if let Some(begin) = self.boot {
            text.push_str(&format!(",boot={begin:#x}"));
        }
        if self.trace {
            text.push_str(",trace=on");
        }
        if self.footprint {
            text.push_str(",footprint=on");
        }
        if self.total {
            text.push_str(",total=on");
        }
        text.into()
    }
}

/// Reads `0xSTART-0xEND`.
pub fn parse_range(text: &str) -> std::result::Result<Range<u64>, String> {
    let number = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let range = text.split_once('-').and_then(|(start, end)| Some(number(start)?..number(end)?));
    match range {
        Some(range) if !range.is_empty() => Ok(range),
        Some(_) => Err("the end is not above the start".to_owned()),
        None => Err("expected two addresses like 0x80000000-0x81000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_addresses() {
        assert_eq!(parse_range("0x80000000-0x81000000"), Ok(0x8000_0000..0x8100_0000));
        assert!(parse_range("0x10-0x10").unwrap_err().contains("not above"));
        for wrong in ["", "0x10", "10-20", "0x10-", "0x10..0x20"] {
            assert!(parse_range(wrong).unwrap_err().contains("expected two addresses"), "{wrong}");
        }
    }

    #[test]
    fn what_the_plugin_is_told() {
        let guest = vec![0x8000_0000..0x8100_0000, 0..0x10];
        let options =
            Options { guest, copy: Some(0x40..0x80), trace: true, footprint: true, ..Options::default() };
        let argument = options.argument(Path::new("a,b/meter.so"), Path::new("out.json"));
        let expected = "a,,b/meter.so,out=out.json,guest=0x80000000-0x81000000,guest=0x0-0x10,copy=0x40-0x80,trace=on,footprint=on";
        assert_eq!(argument, expected);
        let boot = Options { boot: Some(0x4020_0000), ..Options::default() };
        assert_eq!(boot.argument(Path::new("m"), Path::new("o")), "m,out=o,boot=0x40200000");
        let host = Options { host: Some(1), ..Options::default() };
        assert_eq!(host.argument(Path::new("m"), Path::new("o")), "m,out=o,host=1");
        let total = Options { total: true, ..Options::default() };
        assert_eq!(total.argument(Path::new("m"), Path::new("o")), "m,out=o,total=on");
    }
}
