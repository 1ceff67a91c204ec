// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM under the load. Its monitor counts the kernel's tracepoints between the guest's marks.

use std::time::Duration;

use super::{Counts, GUEST, Load};
use crate::bench::report::printable;
use crate::bench::subjects::{Subject, kvm, peer};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::qemu::Boot;
use crate::setup::debian::{self, Flavour};
use crate::setup::qemu::Qemu;
use crate::setup::{images, last_lines};

/// Processor time of a run: of our guest, and of Linux, which takes most of it to boot.
const LIMIT: Duration = Duration::from_secs(240);
const LINUX_LIMIT: Duration = Duration::from_secs(900);
/// What Linux says before its load and behind it.
const BEGIN: &str = "turnstile: load begin";
const END: &str = "turnstile: load end";
/// Its memory in MiB.
const MEMORY: u64 = 256;
/// KVM's paravirtual interface without the part that this is about.
const OTHERS: &str = "clock,ipi,tlb-flush,steal-time,unhalt,poll-control";

/// The host whose KVM a subject is.
fn host(subject: Subject) -> kvm::Host {
    match subject {
        Subject::Kvm61Svm => kvm::Host::OlderSvm,
        _ => kvm::Host::Svm,
    }
}

/// Runs our guest's load and returns the host's version with what it counted.
pub fn count(
    layout: &Layout,
    qemu: &Qemu,
    subject: Subject,
    vcpus: u16,
    options: &str,
) -> Result<(String, Counts)> {
    let host = host(subject);
    images::guests(layout, host.isa())?;
    let folder = layout.bundles().join(format!("exits-{}", subject.name()));
    let words = format!(
        "--events --settle={} --vcpus={vcpus} \"--cmdline=marks cpus={vcpus} {options}\"",
        kvm::SETTLE
    );
    let boot = kvm::boot_guest(host, layout, GUEST, vcpus, &folder, &words)?;
    let said = play(boot, qemu, LIMIT)?;
    Ok((kvm::version(host, layout)?, counts(&said, Load::parse)?))
}

/// Runs Debian's kernel with the words of its command line that make it work, with or without paravirtual EOI, and
/// returns the host's version with what it counted. `load` reads what the guest says of its load.
pub fn count_linux(
    layout: &Layout,
    qemu: &Qemu,
    subject: Subject,
    vcpus: u16,
    options: &str,
    pv_eoi: bool,
    load: impl Fn(&str) -> Option<Load>,
) -> Result<(String, Counts)> {
    let host = host(subject);
    let guest = debian::ensure(layout, host.isa(), Flavour::Cloud)?;
    let folder = layout.bundles().join(format!("exits-linux-{}", subject.name()));
    let boot = kvm::boot_linux(host, layout, &guest, vcpus, &folder, &linux_words(vcpus, options, pv_eoi))?;
    let said = play(boot, qemu, LINUX_LIMIT)?;
    if let Some(error) = said.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        return Err(failure(&format!("the monitor reports: {}", printable(error)), &said));
    }
    for mark in [BEGIN, END] {
        if !said.lines().any(|line| line.trim() == mark) {
            return Err(failure(&format!("the guest never said \"{mark}\""), &said));
        }
    }
    Ok((kvm::version(host, layout)?, counts(&said, load)?))
}

/// What the monitor is told of a Linux guest.
fn linux_words(vcpus: u16, options: &str, pv_eoi: bool) -> String {
    let offered = if pv_eoi { format!("{OTHERS},eoi") } else { OTHERS.to_owned() };
    format!(
        "--events --vcpus={vcpus} --memory={MEMORY} --paravirt={offered} \"--begin={BEGIN}\" \"--end={END}\" \
         \"--cmdline=console=ttyS0 quiet {options}\""
    )
}

/// Runs a host, counted, to its end, and returns what was said.
fn play(mut boot: Boot, qemu: &Qemu, limit: Duration) -> Result<String> {
    boot.counted = true;
    peer::play(&boot, &qemu.path, limit)
}

/// What was counted, as the monitor and the guest said.
fn counts(said: &str, load: impl Fn(&str) -> Option<Load>) -> Result<Counts> {
    let load = said.lines().find_map(load).ok_or_else(|| failure("the guest did not report", said))?;
    match Counts::of_kvm(load, said) {
        counts if counts.exits() == 0 => Err(failure("KVM counted nothing", said)),
        counts => Ok(counts),
    }
}

/// A failure with the end of what was said.
fn failure(what: &str, said: &str) -> Failure {
    Failure::failed(what).details(last_lines(&printable(said), 25))
}
