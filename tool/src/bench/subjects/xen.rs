// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen, with the guest as its first domain: no other kernel is between them. The guest writes by Xen's console
//! hypercall; Xen passes the first domain's text on as it is, between its own lines.

pub mod devices;

use std::path::PathBuf;

use super::peer::{self, MEMORY};
use super::{Outcome, Run};
use crate::failure::Result;
use crate::isa::Isa;
use crate::layout::Layout;
use crate::meter::symbols::Symbols;
use crate::qemu::{Boot, as_value};
use crate::setup::peers;

/// How Xen's own lines begin.
const PREFIX: &str = "(XEN)";
/// Where QEMU puts the guest's image: away from Xen and from the device tree.
const MODULE: u64 = 0x4c00_0000;
/// Memory of the first domain.
const DOMAIN_MEMORY: &str = "64M";

/// Runs a row to its end.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let xen = peers::xen(run.layout)?;
    let vcpus = run.row.vcpus;
    let mut boot = Boot::new(xen.xen(), PathBuf::new(), MEMORY, run.row.cpus().into());
    boot.bundle = None;
    boot.append = format!(
        "console=dtuart dtuart=/pl011@9000000 dom0_mem={DOMAIN_MEMORY} dom0_max_vcpus={vcpus} dom0_vcpus_pin"
    );
    let image = as_value(&run.layout.guest(Isa::Arm64, run.row.guest));
    let cmdline = run.row.cmdline(run.iterations);
    let loader = format!("guest-loader,addr={MODULE:#x},kernel={image},bootargs={cmdline}");
    boot.extra = vec!["-device".into(), loader.into()];
    peer::measure(run, boot, format!("Xen {}", xen.version), guest)
}

/// Xen's functions.
pub fn symbols(layout: &Layout) -> Result<Symbols> {
    Symbols::from_elf(&peers::xen(layout)?.xen_symbols())
}

/// The guest's lines, if Xen booted and ended in order.
fn guest(said: &str) -> std::result::Result<String, String> {
    let is_xens = |line: &&str| line.trim_start().starts_with(PREFIX);
    let mut xen =
        said.lines().filter(is_xens).map(|line| line.trim_start().trim_start_matches(PREFIX).trim());
    if xen.clone().next().is_none() {
        return Err("Xen did not boot: it said nothing".to_owned());
    }
    if xen.any(|line| line.starts_with("Panic on CPU")) {
        let why = xen.find(|line| !line.is_empty() && !line.starts_with('*')).unwrap_or_default();
        return Err(format!("Xen panicked: {why}"));
    }
    Ok(said.lines().filter(|line| !is_xens(line)).map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_lines_are_those_without_xens_prefix() {
        let said = "(XEN) Freed 352kB init memory.\r\n@bench row=x\r\n(XEN) Hardware Dom0 halted\r\n";
        assert_eq!(guest(said).unwrap(), "@bench row=x\n");
    }

    #[test]
    fn a_panic_of_xen_has_a_name() {
        let said = "(XEN) \n(XEN) ****************************************\n(XEN) Panic on CPU 0:\n\
                    (XEN) Unable to find a module\n(XEN) ****************************************\n";
        assert_eq!(guest(said).unwrap_err(), "Xen panicked: Unable to find a module");
        assert!(guest("").unwrap_err().contains("did not boot"));
    }
}
