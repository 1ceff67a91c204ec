// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers give the figures that were recorded of them: whoever measures them in another way measures something
//! else. That holds for the versions that the record names; of others only the order of magnitude is known.

use std::time::Duration;

use turnstile::bench::document::Trace;
use turnstile::bench::native::{self, Native};
use turnstile::bench::recorded::Recorded;
use turnstile::bench::rows::FEWEST;
use turnstile::bench::rows::{self, ROWS, Row};
use turnstile::bench::runner::{Job, Measured, Runner};
use turnstile::bench::subjects::{self, Subject, difference, kvm, peer};
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::peers;
use turnstile::setup::qemu::Qemu;

use super::report::Verdict;

/// By how many percent a figure may differ from the recorded one.
const TOLERANCE: f64 = 2.0;
/// What an operation on a version that nobody recorded may cost at all.
const PLAUSIBLE: std::ops::Range<f64> = 100.0..50_000.0;
/// The same for cycles in QEMU, among which are those of the host's timer.
const NATIVE_TOLERANCE: f64 = 5.0;
/// The same for requests to disks, and for packets.
const DEVICE_TOLERANCE: f64 = 10.0;
/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(180);
/// The rows of disks that are measured: writes take as long as reads, and show no more.
const DISK_ROWS: [&str; 2] = ["disk-read", "disk-batch"];
/// The same of networks: a packet that is waited for, and one to a guest that sleeps.
const NETWORK_ROWS: [&str; 2] = ["packet", "packet-sleeping"];
/// The row of a large VM that tells kernels apart; the others of it take as long and show no more.
const FARTHEST: &str = "sgi-to-31-of-32";
/// The row that the usual run measures: an exit that is answered at once. The long run has the others, too.
const USUAL: &str = "null-hypercall";
/// The rows of PCs that are measured at all, because all would take too long: an exit that is answered at once, a device whose
/// access is decoded, an event for a thread, interrupts without and with an end that exits, and CPUs that wake each other.
const PC_ROWS: [&str; 6] =
    ["null-hypercall", "io-apic", "doorbell", "x2apic-self-ipi-eoi", "x2apic-self-ipi-pv-eoi", "ipi-halted"];
/// The same on POWER: an exit that is answered at once, two of which one may wait, an event, and an interrupt by calls.
const POWER_ROWS: [&str; 4] = ["null-hypercall", "prod-cede", "doorbell", "self-ipi-xics"];
/// The row by which symbols and the native way of measuring are tried: one is enough.
const TRIED: &Row = &ROWS[0];

/// Measures the usual row of all peers and compares; without a network there is nothing to compare.
pub fn usual(layout: &Layout, qemu: &Qemu, isa: Isa) -> Verdict {
    check(layout, qemu, isa, |row| row.name == USUAL)
}

/// The other rows.
pub fn others(layout: &Layout, qemu: &Qemu, isa: Isa) -> Verdict {
    check(layout, qemu, isa, |row| row.name != USUAL && row.disk.is_none() && !row.peer)
}

/// Measures requests to peers' disks and compares: the figures are those of Debian's QEMU and of guests' kernels, too, which Debian
/// replaces without a new host.
pub fn disks(layout: &Layout, qemu: &Qemu, isa: Isa) -> Verdict {
    devices(layout, qemu, isa, &DISK_ROWS)
}

/// The same with packets between peers' guests.
pub fn networks(layout: &Layout, qemu: &Qemu, isa: Isa) -> Verdict {
    devices(layout, qemu, isa, &NETWORK_ROWS)
}

fn devices(layout: &Layout, qemu: &Qemu, isa: Isa, names: &[&str]) -> Verdict {
    let fetch = |subject: &Subject| {
        subjects::fetch(*subject, layout).and_then(|()| difference::fetch(*subject, layout, isa))
    };
    match with_devices(isa).iter().try_for_each(fetch) {
        Err(failure) => Verdict::Skipped(failure.to_string()),
        Ok(()) => Verdict::from(compare_devices(layout, qemu, isa, names)),
    }
}

fn compare_devices(layout: &Layout, qemu: &Qemu, isa: Isa, names: &[&str]) -> Result<()> {
    let recorded = Recorded::load(layout)?;
    let rows = rows::of(isa).iter().filter(|row| names.contains(&row.name));
    let of = |row| with_devices(isa).iter().map(move |subject| Job::new(*subject, row));
    let jobs: Vec<Job> = rows.flat_map(of).collect();
    let results = Runner::new(layout, qemu, isa, FEWEST)?.with_limit(difference::LIMIT).measure(&jobs);
    let mut wrong = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        let measured = result?.figure.instructions;
        let recorded = recorded.instructions(job.subject, job.row.name);
        let is_near = |(measured, recorded)| is_within(DEVICE_TOLERANCE, measured, recorded);
        if !measured.zip(recorded).is_some_and(is_near) {
            let (row, subject) = (job.row.name, job.subject.title());
            wrong.push(format!("{row} on {subject}: {measured:?} instructions, recorded are {recorded:?}"));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Failure::failed("peers' devices do not cost what was recorded").details(wrong.join("\n")))
        }
    }
}

/// The subjects whose devices are measured.
const fn with_devices(isa: Isa) -> &'static [Subject] {
    match isa {
        Isa::Arm64 => &[Subject::KvmVhe, Subject::Xen],
        Isa::X86_64 => &[Subject::KvmSvm],
        Isa::Power64 => &[Subject::KvmHv],
    }
}

/// Whether a figure differs by at most so many percent from the recorded one.
fn is_within(tolerance: f64, measured: f64, recorded: f64) -> bool {
    (measured - recorded).abs() * 100.0 <= tolerance * recorded
}

fn check(layout: &Layout, qemu: &Qemu, isa: Isa, wanted: fn(&Row) -> bool) -> Verdict {
    let kernels = peers::linux(layout, isa).and(peers::linux_6_1(layout, isa));
    let all = match isa {
        Isa::Arm64 => kernels.and(peers::xen(layout)),
        Isa::X86_64 | Isa::Power64 => kernels,
    };
    match all {
        Err(failure) => Verdict::Skipped(failure.to_string()),
        Ok(_) => Verdict::from(compare(layout, qemu, isa, wanted)),
    }
}

fn compare(layout: &Layout, qemu: &Qemu, isa: Isa, wanted: fn(&Row) -> bool) -> Result<()> {
    let recorded = Recorded::load(layout)?;
    let own = [Subject::Turnstile, Subject::TurnstileLinux];
    let peers = Subject::of(isa).filter(|subject| !own.contains(subject));
    let small = |row: &&Row| row.vcpus <= 2 || FARTHEST == row.name;
    let chosen = |row: &&Row| match isa {
        Isa::Arm64 => true,
        Isa::X86_64 => PC_ROWS.contains(&row.name),
        Isa::Power64 => POWER_ROWS.contains(&row.name),
    };
    let rows = || rows::of(isa).iter().filter(small).filter(chosen).filter(|row| wanted(row));
    let all = peers.flat_map(|subject| rows().map(move |row| Job::new(subject, row)));
    let jobs: Vec<Job> = all
        .filter(|job| job.subject.has(job.row))
        // On POWER a visit begins in real mode, where the kernel's symbols are not.
        .map(|job| Job { trace: job.row.name == TRIED.name && isa != Isa::Power64, ..job })
        .collect();
    let results = Runner::new(layout, qemu, isa, FEWEST)?.with_limit(LIMIT).measure(&jobs);
    let mut wrong = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        let verdict = result
            .map_err(|failure| failure.full())
            .and_then(|measured| judge(layout, qemu, &recorded, job, &measured));
        wrong
            .extend(verdict.err().map(|what| format!("{} on {}: {what}", job.row.name, job.subject.title())));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Failure::failed("the peers' figures are not the recorded ones").details(wrong.join("\n")))
        }
    }
}

fn judge(
    layout: &Layout,
    qemu: &Qemu,
    recorded: &Recorded,
    job: &Job,
    measured: &Measured,
) -> std::result::Result<(), String> {
    let instructions = measured.figure.instructions.ok_or("the meter counted nothing")?;
    near_recorded(recorded, job, &measured.version, instructions)?;
    if let Some(trace) = &measured.trace {
        names(job.subject, trace)?;
    }
    if job.subject == Subject::KvmVhe && job.row.name == TRIED.name {
        judge_native(&natively(layout, qemu, job.row)?, instructions)?;
    }
    Ok(())
}

fn near_recorded(
    recorded: &Recorded,
    job: &Job,
    version: &str,
    measured: f64,
) -> std::result::Result<(), String> {
    if recorded.version(job.subject).ok_or("it is not recorded")? != version {
        return match PLAUSIBLE.contains(&measured) {
            true => Ok(()),
            false => Err(format!("{measured} instructions of {version} cannot be")),
        };
    }
    let figure = recorded.instructions(job.subject, job.row.name).ok_or("the row is not recorded")?;
    match is_within(TOLERANCE, measured, figure) {
        true => Ok(()),
        false => Err(format!("{measured} instructions, recorded are {figure}")),
    }
}

/// In QEMU's KVM host the monitor measures as on a machine of its own. There a nanosecond and a cycle are an
/// instruction each, which the meter has counted, too.
fn natively(layout: &Layout, qemu: &Qemu, row: &Row) -> std::result::Result<Native, String> {
    let words = format!(
        "--settle={} --cycles \"--cmdline=iterations={FEWEST} {}\"",
        kvm::SETTLE,
        native::GUEST_OPTIONS
    );
    let run = || {
        let folder = layout.bundles().join("test-native");
        let mut boot = kvm::boot(kvm::Host::Vhe, layout, row, &folder, &words)?;
        boot.counted = true;
        peer::play(&boot, &qemu.path, LIMIT)
    };
    native::read(row.name, &run().map_err(|failure| failure.full())?)
}

fn judge_native(native: &Native, instructions: f64) -> std::result::Result<(), String> {
    let near = |figure: f64| is_within(NATIVE_TOLERANCE, figure, instructions);
    match native.cycles {
        Some(cycles) if near(native.nanoseconds) && near(cycles) => Ok(()),
        _ => Err(format!("{native:?}, and the meter counts {instructions} instructions")),
    }
}

/// Every function that a visit ran has a name, and one of them is where the hypervisor enters its guest.
fn names(subject: Subject, trace: &Trace) -> std::result::Result<(), String> {
    if let Some(step) = trace.steps.iter().find(|step| step.function.is_empty()) {
        return Err(format!("no symbol for {}: {}", step.pc, step.text));
    }
    let entry = match subject {
        Subject::Xen => "return_from_trap",
        Subject::KvmSvm | Subject::Kvm61Svm => "__svm_vcpu_run",
        Subject::KvmHv | Subject::KvmHvOff => "kvmhv_vcpu_entry_p9",
        _ => "__guest_enter",
    };
    let enters = |function: &str| function.trim_start_matches("__kvm_nvhe_").starts_with(entry);
    match trace.folded.iter().any(|part| enters(&part.function)) {
        true => Ok(()),
        false => {
            let last = trace.steps.last().map(|step| step.function.as_str());
            Err(format!("no {entry} in a visit that ends in {last:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recorded_version_must_give_the_recorded_figure() {
        let recorded: Recorded =
            toml::from_str("[kvm-vhe]\nversion = \"Linux 1\"\ninstructions = { null-hypercall = 1000 }")
                .unwrap();
        let job = |subject, row: usize| Job::new(subject, &ROWS[row]);
        let judge = |version, figure| near_recorded(&recorded, &job(Subject::KvmVhe, 0), version, figure);
        assert_eq!(judge("Linux 1", 1020.0), Ok(()));
        assert!(judge("Linux 1", 1021.0).is_err());
        assert!(judge("Linux 1", 979.0).is_err());
        assert_eq!(judge("Linux 2", 2000.0), Ok(()));
        assert!(judge("Linux 2", 99.0).is_err());
        let other = |subject, row| near_recorded(&recorded, &job(subject, row), "Linux 1", 1000.0);
        assert!(other(Subject::KvmVhe, 1).is_err(), "no such figure");
        assert!(other(Subject::Xen, 0).is_err(), "no such subject");
    }

    #[test]
    fn devices_may_cost_a_little_more_or_less() {
        let is_near = |measured| is_within(DEVICE_TOLERANCE, measured, 40_000.0);
        assert!(is_near(36_000.0) && is_near(44_000.0));
        assert!(!is_near(35_999.0) && !is_near(44_001.0));
    }

    #[test]
    fn rows_of_devices_exist_and_are_recorded() {
        let recorded = Recorded::load(&Layout::find().unwrap()).unwrap();
        for isa in Isa::ALL {
            let networks = NETWORK_ROWS.into_iter().filter(|_| isa != Isa::X86_64);
            for name in DISK_ROWS.into_iter().chain(networks) {
                let row = rows::of(isa).iter().find(|row| row.name == name).unwrap();
                for &subject in with_devices(isa) {
                    assert!(difference::has(subject, row), "{name} on {subject:?}");
                    assert!(recorded.instructions(subject, name).is_some(), "{name} on {subject:?}");
                }
            }
        }
    }
}
