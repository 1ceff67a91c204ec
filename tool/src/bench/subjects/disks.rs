// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of Linux KVM: Debian's QEMU is the monitor, whose virtio-blk device has a thread of its own over a RAM disk of the host, and
//! Debian's Linux the guest, whose program makes the requests of a row, past the kernel's cache.
//!
//! What a request costs outside the guest is spread over threads and CPUs, so it is no visit. The figure is a difference: of two boots,
//! one does twice as much.

use std::path::Path;
use std::time::Duration;

use super::{Run, Subject, kvm, mitigations, peer};
use crate::bench::report::printable;
use crate::bench::rows::{self, Row};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::meter::Options;
use crate::meter::reading::{Reading, Total};
use crate::qemu::Boot;
use crate::setup::debian::{self, Debian, Flavour};
use crate::setup::{images, initramfs, last_lines, monitor};

/// The host.
const HOST: kvm::Host = kvm::Host::Vhe;
/// Its CPUs: the vCPU has the first one, and QEMU's other threads the second one.
const CPUS: u16 = 2;
/// The guest's memory in MiB.
const MEMORY: u64 = 256;
/// The processor time of a run in which two kernels boot, one in the other.
pub const LIMIT: Duration = Duration::from_secs(400);
/// How many requests `disk-batch` makes at once.
const DEPTH: u64 = 16;
/// What the guest says when all requests were answered.
const DONE: &str = "turnstile: work ok";

/// Whether a subject has a row of disks here.
pub fn has(subject: Subject, row: &Row) -> bool {
    subject == Subject::KvmVhe && row.disk == Some(rows::Disk::Ram) && row.isa == Isa::Arm64
}

/// What was counted in two boots, of which the second one did `operations` more.
#[derive(Clone, Debug)]
pub struct Difference {
    /// How many operations the first one did.
    pub operations: u64,
    /// Its count.
    pub once: Total,
    /// The count of the one that did twice as many.
    pub twice: Total,
    /// What was measured, with its version, for people.
    pub version: String,
    /// What the host does against speculation, as it says itself.
    pub mitigations: String,
}

/// Gets what these rows need, if it is not in the cache.
pub fn fetch(layout: &Layout) -> Result<()> {
    debian::ensure(layout, Isa::Arm64, Flavour::Cloud)?;
    monitor::ensure(layout).map(drop)
}

/// Boots twice, and counts.
pub fn measure(run: &Run<'_>) -> Result<Difference> {
    // A request of a batch takes as long as any.
    let operations = run.row.iterations(run.iterations) / if is_batch(run.row) { DEPTH } else { 1 };
    let (once, _) = count(run, operations, "once")?;
    let (twice, mitigations) = count(run, 2 * operations, "twice")?;
    if twice.outside <= once.outside {
        return Err(Failure::failed("twice as many requests took no more instructions"));
    }
    let version = kvm::version(HOST, run.layout)?;
    Ok(Difference { operations, once, twice, version, mitigations })
}

/// Whether the row makes several requests at once.
fn is_batch(row: &Row) -> bool {
    row.options.contains("depth=16")
}

/// Counts a boot in which so many operations are done. Also says what the host does against speculation.
fn count(run: &Run<'_>, operations: u64, name: &str) -> Result<(Total, String)> {
    let folder = run.folder.join(name);
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let out = folder.join("reading.json");
    let mut boot = boot(run.layout, &folder, &told(run.row, operations))?;
    boot.counted = true;
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

/// What the guest's program is told, in as many bytes whatever the number is: so all boots are alike up to it.
fn told(row: &Row, operations: u64) -> String {
    format!("{} {operations:010}\n", row.name)
}

/// The machine of the host.
fn boot(layout: &Layout, folder: &Path, told: &str) -> Result<Boot> {
    let guest = guest(layout, folder, told)?;
    let commands = folder.join("monitors");
    write_atomically(&commands, command().as_bytes())?;
    let monitor = monitor::ensure(layout)?;
    let mut files = vec![
        ("modules/0-brd".to_owned(), HOST.peer(layout)?.ram_disks()),
        ("guest".to_owned(), guest.kernel),
        ("initrd".to_owned(), guest.initrd),
        ("monitors".to_owned(), commands),
    ];
    files.extend(monitor.files());
    let files: Vec<_> = files.iter().map(|(name, file)| (name.as_str(), file.clone())).collect();
    let words = format!("--monitors=/monitors --settle={}", kvm::SETTLE);
    kvm::boot_host(HOST, layout, &files, CPUS, folder, &words)
}

/// Debian's kernel with the drivers of disks, and the program with what it is told.
fn guest(layout: &Layout, folder: &Path, told: &str) -> Result<Debian> {
    let debian = debian::ensure(layout, Isa::Arm64, Flavour::Cloud)?;
    let drivers = folder.join("drivers.cpio");
    write_atomically(&drivers, &debian::initrd_with_drivers(layout, Isa::Arm64, Flavour::Cloud)?)?;
    let program = images::work(layout, Isa::Arm64)?;
    let program = std::fs::read(&program).context(|| format!("cannot read {}", program.display()))?;
    let initrd = folder.join("initramfs");
    write_atomically(&initrd, &initramfs::with_program(&drivers, "work", &program, told.as_bytes())?)?;
    Ok(Debian { initrd, ..debian })
}

/// QEMU's command, a word in each line. Its I/O thread does not poll: that would take the time of a CPU that nobody else has here.
fn command() -> String {
    let memory = MEMORY.to_string();
    let words = [
        &["/bin/qemu", "-name", "guest,debug-threads=on", "-machine", "virt,gic-version=3,accel=kvm"][..],
        &["-cpu", "host", "-smp", "1", "-m", &memory, "-nodefaults", "-display", "none", "-serial", "stdio"],
        &["-no-reboot", "-kernel", "/guest", "-initrd", "/initrd"],
        &["-append", "quiet turnstile.run=work,poweroff", "-object", "iothread,id=io,poll-max-ns=0"],
        &["-drive", "if=none,id=data,file=/dev/ram0,format=raw,cache=none,aio=native"],
        &["-device", "virtio-blk-pci,drive=data,iothread=io"],
    ];
    words.concat().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    fn row(isa: Isa, name: &str) -> &'static Row {
        rows::select(isa, &[name.to_owned()]).unwrap()[0]
    }

    #[test]
    fn two_boots_differ_in_a_number_alone() {
        let row = row(Isa::Arm64, "disk-read");
        assert_eq!(
            (told(row, 256), told(row, 512)),
            ("disk-read 0000000256\n".into(), "disk-read 0000000512\n".into())
        );
        assert!(!is_batch(row) && is_batch(self::row(Isa::Arm64, "disk-batch")));
    }

    #[test]
    fn one_host_has_disks() {
        let disk = row(Isa::Arm64, "disk-write");
        assert!(has(Subject::KvmVhe, disk) && !has(Subject::KvmNvhe, disk) && !has(Subject::Turnstile, disk));
        assert!(!has(Subject::KvmVhe, row(Isa::Arm64, "packet")));
        assert!(!has(Subject::KvmSvm, row(Isa::X86_64, "disk-write")));
    }

    #[test]
    fn the_monitor_reads_words_in_lines() {
        let command = command();
        let words: Vec<&str> = command.lines().collect();
        assert_eq!((words[0], words.contains(&"")), ("/bin/qemu", false));
        let after = |word: &str| words[1 + words.iter().position(|found| *found == word).unwrap()];
        assert_eq!(after("-append"), "quiet turnstile.run=work,poweroff");
        assert_eq!(after("-m"), "256");
    }
}
