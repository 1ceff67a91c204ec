// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM under the load. Its monitor counts the kernel's tracepoints between the guest's marks.

use std::time::Duration;

use super::{Case, Counts, Guest, Load};
use crate::bench::report::printable;
use crate::bench::subjects::{Subject, kvm, peer};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::setup::qemu::Qemu;
use crate::setup::{images, last_lines};

/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs the load and returns the host's version with what it counted.
pub fn count(layout: &Layout, qemu: &Qemu, subject: Subject, case: Case) -> Result<(String, Counts)> {
    let host = match subject {
        Subject::Kvm61Svm => kvm::Host::OlderSvm,
        _ => kvm::Host::Svm,
    };
    images::guests(layout, host.isa())?;
    let folder = layout.bundles().join(format!("exits-{}", subject.name()));
    let vcpus = case.vcpus;
    if case.guest == Guest::Linux {
        return Err(Failure::failed("the monitor for Linux KVM does not start Linux"));
    }
    let words = format!(
        "--events --settle={} --vcpus={vcpus} \"--cmdline=marks cpus={vcpus} {}\"",
        kvm::SETTLE,
        case.options()
    );
    let mut boot = kvm::boot_guest(host, layout, case.guest.name(), vcpus, &folder, &words)?;
    boot.counted = true;
    let said = peer::play(&boot, &qemu.path, LIMIT)?;
    let failure = |what: &str| Failure::failed(what).details(last_lines(&printable(&said), 25));
    let load = said.lines().find_map(Load::parse).ok_or_else(|| failure("the guest did not report"))?;
    let counts = Counts::of_kvm(load, &said);
    if counts.exits() == 0 {
        return Err(failure("KVM counted nothing"));
    }
    Ok((kvm::version(host, layout)?, counts))
}
