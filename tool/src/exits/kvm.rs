// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM under the load. Its monitor counts the kernel's tracepoints between the guest's marks.

use std::path::Path;
use std::time::Duration;

use super::guest::{LINUX_BEGIN, LINUX_END};
use super::{Case, Counts, Guest, Load};
use crate::bench::report::printable;
use crate::bench::subjects::{Subject, kvm, peer};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::qemu::Boot;
use crate::setup::debian::{self, Flavour};
use crate::setup::qemu::Qemu;
use crate::setup::{images, last_lines};

/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(240);
/// Linux's memory in MiB.
const MEMORY: u64 = 256;
/// The parts of KVM's paravirtual interface, without the one that this is about.
const OTHERS: &str = "clock,ipi,tlb-flush,steal-time,unhalt,poll-control";

/// Runs the load and returns the host's version with what it counted.
pub fn count(layout: &Layout, qemu: &Qemu, subject: Subject, case: Case) -> Result<(String, Counts)> {
    let host = match subject {
        Subject::Kvm61Svm => kvm::Host::OlderSvm,
        _ => kvm::Host::Svm,
    };
    let folder = layout.bundles().join(format!("exits-{}-{}", case.guest.name(), subject.name()));
    let mut boot = match case.guest {
        Guest::Load => load(host, layout, case, &folder)?,
        Guest::Linux => linux(host, layout, case, &folder)?,
    };
    boot.counted = true;
    let said = peer::play(&boot, &qemu.path, LIMIT)?;
    let counts = counted(case.guest, &said)
        .map_err(|what| Failure::failed(what).details(last_lines(&printable(&said), 25)))?;
    Ok((kvm::version(host, layout)?, counts))
}

/// The machine with our guest.
fn load(host: kvm::Host, layout: &Layout, case: Case, folder: &Path) -> Result<Boot> {
    images::guests(layout, host.isa())?;
    let vcpus = case.vcpus;
    let words = format!(
        "--events --settle={} --vcpus={vcpus} \"--cmdline=marks cpus={vcpus} {}\"",
        kvm::SETTLE,
        case.options()
    );
    kvm::boot_guest(host, layout, case.guest.name(), vcpus, folder, &words)
}

/// The machine with Linux. What the host does after its boot is over before the guest's is.
fn linux(host: kvm::Host, layout: &Layout, case: Case, folder: &Path) -> Result<Boot> {
    let debian = debian::ensure(layout, host.isa(), Flavour::Cloud)?;
    kvm::boot_linux(host, layout, &debian, case.vcpus, folder, &linux_words(case))
}

/// What the monitor is told of Linux. The kernel and its command line are those that Turnstile has, but for [`kvm::PROBE`].
fn linux_words(case: Case) -> String {
    let eoi = if case.pv_eoi { ",eoi" } else { "" };
    format!(
        "--events --settle={} --vcpus={} --memory={MEMORY} --paravirt={OTHERS}{eoi} \"--begin={LINUX_BEGIN}\" \
         \"--end={LINUX_END}\" \"--cmdline=console=ttyS0 quiet {} turnstile.run=load,poweroff\"",
        kvm::SETTLE,
        case.vcpus,
        kvm::PROBE
    )
}

/// What was counted, of all that was said.
fn counted(guest: Guest, said: &str) -> std::result::Result<Counts, String> {
    let says = |text: &str| said.lines().any(|line| line.trim() == text);
    if guest == Guest::Linux {
        // Our guest has such lines, too, about what QEMU doubles.
        if let Some(error) = said.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
            return Err(format!("the monitor reports: {}", printable(error)));
        }
        if let Some(mark) = [LINUX_BEGIN, LINUX_END].into_iter().find(|mark| !says(mark)) {
            return Err(format!("the guest never printed \"{mark}\""));
        }
    }
    let load = said.lines().find_map(Load::parse).ok_or("the guest did not report")?;
    match Counts::of_kvm(load, said) {
        counts if counts.exits() == 0 => Err("KVM counted nothing".to_owned()),
        counts => Ok(counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "turnstile: load begin\r\n...\r\nturnstile: load end\r\n@event kvm_exit 7\n\
                        turnstile: load interrupts=5 timer=3 ipi=1 device=1\r\n";

    #[test]
    fn linux_is_offered_the_interface_without_and_with() {
        let words = |pv_eoi| linux_words(Case { guest: Guest::Linux, vcpus: 2, pv_eoi });
        assert!(words(true).contains("poll-control,eoi ") && !words(false).contains("eoi "));
        assert!(words(true).contains("\"--begin=turnstile: load begin\" \"--end=turnstile: load end\""));
    }

    #[test]
    fn a_linux_that_ran_to_its_end_is_counted() {
        let counts = counted(Guest::Linux, SAID).unwrap();
        assert_eq!((counts.load.interrupts, counts.exits()), (5, 7));
    }

    #[test]
    fn what_is_missing_has_a_name() {
        let fails = |said: String| counted(Guest::Linux, &said).unwrap_err();
        assert_eq!(fails(SAID.replace("begin", "")), "the guest never printed \"turnstile: load begin\"");
        assert_eq!(fails(SAID.replace("end", "")), "the guest never printed \"turnstile: load end\"");
        assert_eq!(fails(SAID.replace("interrupts", "")), "the guest did not report");
        assert_eq!(fails(SAID.replace("exit 7", "exit 0")), "KVM counted nothing");
        assert!(fails(format!("{SAID}@error no\n")).contains("the monitor reports: no"));
    }

    #[test]
    fn our_guest_may_complain_of_what_qemu_doubles() {
        let said = "@event kvm_exit 7\n@load interrupts=5 spared=0\n@error 3 IPIs were sent, and 4 taken\n";
        assert_eq!(counted(Guest::Load, said).unwrap().exits(), 7);
    }
}
