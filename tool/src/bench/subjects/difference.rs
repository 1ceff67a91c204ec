// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of Linux KVM in which Debian's QEMU is the monitor (those of Xen are in `xen/`), and Debian's Linux the guest, whose program does the work of a row.
//!
//! What an operation costs outside the guest is spread over threads and CPUs, so it is no visit. The figure is a difference: of two
//! boots, one does more.

use std::path::{Path, PathBuf};

use super::plan::{DONE, Guest, MEMORY, Plan, debian, with_work};
pub use super::plan::{Difference, LIMIT};
use super::{Run, Subject, disks, kvm, linux, mitigations, networks, peer, xen};
use crate::bench::report::printable;
use crate::bench::rows::Row;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::meter::Options;
use crate::meter::reading::{Reading, Total};
use crate::setup::debian::{self, Flavour};
use crate::setup::{last_lines, monitor};

/// The host of a subject, if that is one whose guests have such devices here.
fn host(subject: Subject) -> Option<kvm::Host> {
    match subject {
        Subject::KvmVhe => Some(kvm::Host::Vhe),
        Subject::KvmNvhe => Some(kvm::Host::Nvhe),
        Subject::KvmHv => Some(kvm::Host::Hv),
        Subject::KvmSvm => Some(kvm::Host::Svm),
        _ => None,
    }
}

/// Whether a row of a subject is measured so.
pub fn has(subject: Subject, row: &Row) -> bool {
    match subject {
        Subject::TurnstileLinux => return linux::has(row),
        Subject::Xen => return xen::devices::has(row),
        _ => {}
    }
    // Two guests on a network hang there as they boot (docs/src/peers.md, "Packets on AMD64").
    let has_networks = subject != Subject::KvmSvm;
    host(subject).is_some() && (disks::has(row) || has_networks && networks::has(row))
}

/// Gets what these rows of a subject need, if it is not in the cache.
pub fn fetch(subject: Subject, layout: &Layout, isa: Isa) -> Result<()> {
    match subject {
        Subject::TurnstileLinux => debian::initrd_with_drivers(layout, isa, Flavour::Cloud).map(drop),
        Subject::Xen => xen::devices::fetch(layout),
        _ => debian::ensure(layout, isa, Flavour::Cloud).and(monitor::ensure(layout, isa)).map(drop),
    }
}

/// Boots twice, and counts.
pub fn measure(subject: Subject, run: &Run<'_>) -> Result<Difference> {
    match subject {
        Subject::TurnstileLinux => return linux::measure(run),
        Subject::Xen => return xen::devices::measure(run),
        _ => {}
    }
    let host = host(subject).ok_or_else(|| Failure::failed("its guests have no devices here"))?;
    let peer = host.peer(run.layout)?;
    let plan = match networks::has(run.row) {
        true => networks::plan(run, &peer)?,
        false => disks::plan(run, &peer),
    };
    let (less, _) = count(run, host, &plan, 0)?;
    let (more, mitigations) = count(run, host, &plan, 1)?;
    Difference::new(plan.operations, [less, more], kvm::version(host, run.layout)?, mitigations)
}

/// Counts one of the two boots. Also says what the host does against speculation.
fn count(run: &Run<'_>, host: kvm::Host, plan: &Plan, boot: usize) -> Result<(Total, String)> {
    let folder = run.folder.join(boot.to_string());
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let out = folder.join("reading.json");
    let words = format!("--monitors=/monitors --settle={}", host.settle());
    let files = files(run.layout, host.isa(), plan, boot, &folder)?;
    let files: Vec<_> = files.iter().map(|(name, file)| (name.as_str(), file.clone())).collect();
    let mut boot = kvm::boot_host(host, run.layout, &files, plan.cpus, &folder, &words)?;
    boot.counted = true;
    boot.extra.extend(plan.emulator.iter().cloned());
    boot.extra.extend(["-plugin".into(), Options::default().argument(&run.meter, &out)]);
    let said = kvm::guest(&peer::play(&boot, &run.qemu.path, run.limit.max(LIMIT))?);
    let said = said.map_err(|what| Failure::failed(printable(&what)))?;
    let details = || last_lines(&printable(&said), 25);
    if let Some(error) = said.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        return Err(Failure::failed(format!("the host reports: {}", printable(error))).details(details()));
    }
    if !said.lines().any(|line| line.trim() == DONE) {
        return Err(Failure::failed(format!("the guest did not say \"{DONE}\"")).details(details()));
    }
    Ok((Reading::load(&out)?.total, mitigations::of_linux(&printable(&said))))
}

/// The files of the host, with their names.
fn files(
    layout: &Layout,
    isa: Isa,
    plan: &Plan,
    boot: usize,
    folder: &Path,
) -> Result<Vec<(String, PathBuf)>> {
    let drivers = folder.join("drivers.cpio");
    write_atomically(&drivers, &debian::initrd_with_drivers(layout, isa, Flavour::Cloud)?)?;
    let debian = debian(layout, isa)?;
    let (commands, mut files) = (folder.join("monitors"), monitor::ensure(layout, isa)?.files());
    let all: Vec<String> =
        plan.guests.iter().enumerate().map(|(at, guest)| command(isa, at, guest)).collect();
    write_atomically(&commands, all.join("\n").as_bytes())?;
    files.extend([("monitors".to_owned(), commands), ("guest".to_owned(), debian.kernel.clone())]);
    for (at, guest) in plan.guests.iter().enumerate() {
        let initrd = folder.join(format!("initramfs{at}"));
        let told = guest.told.get(boot).map_or("", String::as_str);
        write_atomically(&initrd, &with_work(layout, isa, &drivers, told)?)?;
        files.push((format!("initrd{at}"), initrd));
    }
    for (at, module) in plan.modules.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("modules/{at}-{name}"), module.clone()));
    }
    for (name, bytes) in &plan.programs {
        let file = folder.join(name);
        write_atomically(&file, bytes)?;
        files.push((format!("bin/{name}"), file));
    }
    Ok(files)
}

/// QEMU's words for the machine of a guest, and for where it finds the firmware of one that needs it.
fn machine(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &["virt,gic-version=3,accel=kvm"],
        // The emulated host's firmware tells of no mitigations, so KVM offers the guest none. Its own firmware is not SLOF, which takes
        // billions of instructions.
        Isa::Power64 => &[
            "pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off,accel=kvm",
            "-L",
            "/share",
        ],
        Isa::X86_64 => &["q35,accel=kvm", "-L", "/share"],
    }
}

/// How the command line of its kernel begins.
fn parameters(isa: Isa) -> String {
    match isa {
        Isa::Arm64 | Isa::Power64 => "quiet".to_owned(),
        Isa::X86_64 => format!("console=ttyS0 quiet {}", kvm::PROBE),
    }
}

/// QEMU's command for a guest, a word in each line.
fn command(isa: Isa, at: usize, guest: &Guest) -> String {
    let (memory, initrd) = (MEMORY.to_string(), format!("/initrd{at}"));
    let append = [&parameters(isa), &guest.append, "turnstile.run=work,poweroff"].join(" ");
    let words = [
        &["/bin/qemu", "-name", "guest,debug-threads=on", "-machine"][..],
        machine(isa),
        &[
            "-cpu",
            "host",
            "-smp",
            "1",
            "-m",
            &memory,
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            guest.serial,
        ],
        &["-no-reboot", "-kernel", "/guest", "-initrd", &initrd, "-append", &append],
        &guest.device.iter().map(String::as_str).collect::<Vec<_>>(),
    ];
    words.concat().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    #[test]
    fn hosts_have_devices() {
        let row = |isa, name: &str| rows::select(isa, &[name.to_owned()]).unwrap()[0];
        let hosts =
            [(Isa::Arm64, Subject::KvmVhe), (Isa::Arm64, Subject::KvmNvhe), (Isa::Power64, Subject::KvmHv)];
        for (isa, subject) in hosts.into_iter().chain([(Isa::X86_64, Subject::KvmSvm)]) {
            for name in ["disk-write", "packet", "packet-sleeping", "segment"] {
                let is_disk = name == "disk-write";
                assert_eq!(
                    has(subject, row(isa, name)),
                    is_disk || isa != Isa::X86_64,
                    "{name} on {subject:?}"
                );
                assert!(!has(Subject::Turnstile, row(isa, name)), "{name}");
            }
            assert!(!has(subject, row(isa, "packet-1cpu")), "each vCPU has a CPU of its own");
            assert!(!has(subject, row(isa, "packet-pairs")), "a tap has one pair of queues");
            assert!(!has(subject, row(isa, "drive-read")) && !has(subject, row(isa, "packet-uplink")));
        }
        assert!(!has(Subject::Kvm61Vhe, row(Isa::Arm64, "packet")));
        assert!(!has(Subject::KvmHvOff, row(Isa::Power64, "packet")));
        assert!(!has(Subject::Kvm61Svm, row(Isa::X86_64, "packet")));
        for name in ["disk-read", "disk-batch", "packet", "packet-sleeping", "segment"] {
            assert!(has(Subject::Xen, row(Isa::Arm64, name)) && Subject::Xen.has(row(Isa::Arm64, name)));
            assert!(!Subject::Xen.has(row(Isa::X86_64, name)), "{name}");
        }
        for name in ["packet-1cpu", "packet-pairs", "drive-read", "disk-read-mmio"] {
            assert!(!Subject::Xen.has(row(Isa::Arm64, name)), "{name}");
        }
        for name in ["drive-read", "disk-read-mmio", "touch-lent", "console-write", "give-back"] {
            let row = row(Isa::Arm64, name);
            assert!(
                !has(Subject::KvmVhe, row) && !Subject::KvmVhe.has(row) && Subject::Turnstile.has(row),
                "{name}"
            );
        }
    }

    #[test]
    fn a_guest_has_the_machine_of_its_host() {
        let guest =
            Guest { append: String::new(), serial: "stdio", device: Vec::new(), told: Default::default() };
        let has = |isa, words: &str| command(isa, 0, &guest).contains(words);
        assert!(has(Isa::Arm64, "-machine\nvirt,gic-version=3,accel=kvm\n-cpu\nhost\n"));
        assert!(has(Isa::Power64, "-machine\npseries,x-vof=on,") && has(Isa::Power64, "-L\n/share\n"));
        assert!(has(Isa::X86_64, "-append\nconsole=ttyS0 quiet kprobe_event="));
        assert!(!has(Isa::Arm64, "-L\n"), "it needs no firmware");
    }

    #[test]
    fn the_monitor_reads_words_in_lines() {
        let device = vec!["-device".to_owned(), "a-device".to_owned()];
        let (append, told) = ("a=b".to_owned(), ["1".to_owned(), "2".to_owned()]);
        let command = command(Isa::Arm64, 1, &Guest { append, serial: "stdio", device, told });
        let words: Vec<&str> = command.lines().collect();
        assert_eq!((words[0], words.contains(&"")), ("/bin/qemu", false));
        let after = |word: &str| words[1 + words.iter().position(|found| *found == word).unwrap()];
        assert_eq!(after("-append"), "quiet a=b turnstile.run=work,poweroff");
        assert_eq!([after("-m"), after("-initrd"), after("-device")], ["256", "/initrd1", "a-device"]);
    }
}
