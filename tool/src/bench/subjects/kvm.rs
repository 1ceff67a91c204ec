// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM: Debian's kernel boots on QEMU with nothing but our monitor for user space, which runs the guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::peer::{self, MEMORY};
use super::{Modules, Outcome, Run};
use crate::bench::report::printable;
use crate::bench::rows::Row;
use crate::config::Board;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::meter::symbols::Symbols;
use crate::qemu::Boot;
use crate::setup::debian::Debian;
use crate::setup::qemu::Qemu;
use crate::setup::{Lock, images, initramfs, last_lines, peers};

/// Which kernel the host has, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// In EL2, by the Virtualization Host Extensions.
    Vhe,
    /// In EL1, with a part of KVM in EL2.
    Nvhe,
    /// Linux 6.1, in EL2.
    Older,
    /// On AMD64, by SVM.
    Svm,
    /// Linux 6.1, on AMD64.
    OlderSvm,
    /// On POWER, in hypervisor mode.
    Hv,
    /// The same without mitigations.
    HvOff,
}

impl Host {
    /// The architecture of the host and its guests.
    pub fn isa(self) -> Isa {
        match self {
            Host::Vhe | Host::Nvhe | Host::Older => Isa::Arm64,
            Host::Svm | Host::OlderSvm => Isa::X86_64,
            Host::Hv | Host::HvOff => Isa::Power64,
        }
    }

    /// The serial line.
    fn line(self) -> &'static str {
        match self.isa() {
            Isa::Arm64 => "ttyAMA0",
            Isa::X86_64 => "ttyS0",
            Isa::Power64 => "hvc0",
        }
    }

    fn parameter(self) -> &'static str {
        match self {
            // The host gives its guests small pages, so that each first touch of one is a fault.
            Host::Vhe | Host::Svm | Host::OlderSvm | Host::Hv => " transparent_hugepage=never",
            Host::Nvhe => " transparent_hugepage=never kvm-arm.mode=nvhe",
            Host::HvOff => " transparent_hugepage=never mitigations=off",
            Host::Older => "",
        }
    }

    /// How many seconds its kernel has work after its boot.
    pub fn settle(self) -> u64 {
        if self.isa() == Isa::Power64 { SETTLE_POWER } else { SETTLE }
    }

    /// The kernel.
    pub fn peer(self, layout: &Layout) -> Result<peers::Peer> {
        match self {
            Host::Vhe | Host::Nvhe | Host::Svm | Host::Hv | Host::HvOff => peers::linux(layout, self.isa()),
            Host::Older | Host::OlderSvm => peers::linux_6_1(layout, self.isa()),
        }
    }
}

/// How many CPUs a host has at most: a sender's and another one, which further vCPUs share.
const CPUS: u16 = 2;

/// Addresses as the symbols have them; little to say; an end, not a loop, after a panic. A random offset of the
/// kernel's stack at each system call would cost what the random generator costs.
const PARAMETERS: &str = "nokaslr quiet panic=-1 randomize_kstack_offset=off";
/// After a boot the kernel's threads have work for this many seconds; they would be counted, too.
pub const SETTLE: u64 = 5;
/// On POWER they test its ciphers besides.
const SETTLE_POWER: u64 = 20;

/// Words for the command line of a Linux guest on AMD64. QEMU 10.0 delivers an interrupt that KVM injects a second time, at once and
/// whatever RFLAGS.IF says, if a timer of the machine's rings before the guest has the next #VMEXIT or exception (docs/src/pv-eoi.md).
/// In a handler that holds a lock Linux then waits for itself. A breakpoint at the beginning of the handlers is such an exception, and
/// none that KVM intercepts; the reschedule interrupt's handler does not pass it.
pub const PROBE: &str = "kprobe_event=p:enter,irq_enter_rcu+5 sysctl.debug.kprobes-optimization=0";

/// Runs a row to its end.
pub fn run(host: Host, run: &Run<'_>) -> Result<Outcome> {
    let peer = host.peer(run.layout)?;
    // The kernel splits its command line at spaces, but not in quotes, which it takes away only at both ends.
    let settle = host.settle();
    let words = format!("--settle={settle} \"--cmdline={}\"", run.row.cmdline(run.iterations));
    let boot = boot(host, run.layout, run.row, &run.folder, &words)?;
    peer::measure(run, boot, named(&peer), guest)
}

/// What a host is, for people.
pub fn version(host: Host, layout: &Layout) -> Result<String> {
    host.peer(layout).map(|peer| named(&peer))
}

fn named(peer: &peers::Peer) -> String {
    format!("Linux {} KVM", peer.version)
}

/// The machine of a KVM host that runs a row's guest; `words` are the monitor's further options.
pub fn boot(host: Host, layout: &Layout, row: &Row, folder: &Path, words: &str) -> Result<Boot> {
    let turns = if row.shared.is_some() { " --take-turns" } else { "" };
    // The thread that hears a doorbell has a CPU of its own.
    let cpus = row.cpus() + u16::from(doorbell(row).is_some());
    boot_guest(host, layout, row.guest, cpus, folder, &format!("{}{turns} {words}", machine(row)))
}

/// The machine of a KVM host that runs a measuring guest on so many CPUs; `words` tell the monitor of its vCPUs.
pub fn boot_guest(
    host: Host,
    layout: &Layout,
    guest: &str,
    cpus: u16,
    folder: &Path,
    words: &str,
) -> Result<Boot> {
    let files = [("guest", layout.guest(host.isa(), guest))];
    boot_files(host, layout, &files, cpus, folder, words)
}

/// The same for a Linux guest.
pub fn boot_linux(
    host: Host,
    layout: &Layout,
    guest: &Debian,
    cpus: u16,
    folder: &Path,
    words: &str,
) -> Result<Boot> {
    let files = [("guest", guest.kernel.clone()), ("initrd", guest.initrd.clone())];
    boot_files(host, layout, &files, cpus, folder, &format!("--initrd=/initrd {words}"))
}

/// The machine of a KVM host whose monitor finds these files, the first of them its guest.
fn boot_files(
    host: Host,
    layout: &Layout,
    files: &[(&str, PathBuf)],
    cpus: u16,
    folder: &Path,
    words: &str,
) -> Result<Boot> {
    let cpus = cpus.min(CPUS);
    boot_host(host, layout, files, cpus, folder, &format!("--guest=/guest --cpus={cpus} {words}"))
}

/// The machine of a KVM host with so many CPUs whose monitor finds these files, and is told these words.
pub fn boot_host(
    host: Host,
    layout: &Layout,
    files: &[(&str, PathBuf)],
    cpus: u16,
    folder: &Path,
    words: &str,
) -> Result<Boot> {
    std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    let initrd = folder.join("initrd");
    write_initrd(host, layout, files, &initrd)?;
    let mut boot = machine_of(host, host.peer(layout)?.linux(), initrd, cpus);
    boot.append = parameters(host, words);
    Ok(boot)
}

/// The machine that a host runs on.
fn machine_of(host: Host, kernel: PathBuf, initrd: PathBuf, cpus: u16) -> Boot {
    // skiboot's own memory is above 512 MiB.
    let memory = if host.isa() == Isa::Power64 { 2 * MEMORY } else { MEMORY };
    Boot { board: Board::usual(host.isa()), ..Boot::new(kernel, initrd, memory, cpus.into()) }
}

/// Where the doorbell of a row is, if it has one: where its guest looks for it, on Turnstile, too.
fn doorbell(row: &Row) -> Option<u64> {
    row.rings().then_some(match row.isa {
        Isa::Arm64 => 0x103_0000,
        Isa::X86_64 => 0xfed8_0000,
        Isa::Power64 => (1 << 40) + 0x1_0000,
    })
}

/// The monitor's options that make the machine of a row.
pub fn machine(row: &Row) -> String {
    let doorbell = doorbell(row).map(|address| format!(" --doorbell={address:#x}"));
    let vcpus = format!("--vcpus={}{}", row.vcpus, doorbell.unwrap_or_default());
    match row.isa {
        Isa::Arm64 => format!("{vcpus} --memory={}{}", row.memory, if row.pmu { " --pmu" } else { "" }),
        Isa::X86_64 => format!("{vcpus} --memory={}", row.memory),
        Isa::Power64 => {
            let xics = if row.lines.contains("xics") { " --interrupts=xics" } else { "" };
            format!("{vcpus} --memory={}{xics}", row.memory)
        }
    }
}

/// The kernel's command line; what is behind `--` is the monitor's.
fn parameters(host: Host, monitor: &str) -> String {
    format!("console={} {PARAMETERS}{} -- {monitor}", host.line(), host.parameter())
}

/// Writes the host's RAM disk: the monitor, KVM's modules, and these files.
fn write_initrd(host: Host, layout: &Layout, more: &[(&str, PathBuf)], to: &Path) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).context(|| format!("cannot read {}", path.display()));
    let monitor = read(&images::vmm(layout, host.isa())?)?;
    let mut files = Vec::new();
    for module in host.peer(layout)?.modules() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        files.push((format!("modules/{name}"), read(&module)?));
    }
    for (name, file) in more {
        files.push(((*name).to_owned(), read(file)?));
    }
    write_atomically(to, &initramfs::host(&monitor, &files)?)
}

/// The guest's lines: those of a host that neither panicked nor ended before its monitor began.
pub fn guest(said: &str) -> std::result::Result<String, String> {
    match said.lines().find_map(|line| Some(line.split_once("Kernel panic")?.1.trim())) {
        Some(panic) => Err(format!("the host's kernel panicked {panic}")),
        None if said.trim().is_empty() => Err("the host's kernel did not boot: it said nothing".to_owned()),
        None => Ok(said.to_owned()),
    }
}

/// The kernel's functions, with its modules where they are in this run, and the rest as it was linked: what nVHE has in
/// EL2 runs elsewhere.
pub fn symbols(host: Host, layout: &Layout, qemu: &Qemu, modules: &Modules) -> Result<Symbols> {
    let peer = host.peer(layout)?;
    let file = peer.folder.join(peers::SYMBOLS);
    // Both modes ask at the same time, and so may another run.
    let _lock = Lock::take(&peer.folder, "symbols.lock")?;
    if !file.is_file() {
        write_symbols(host, layout, qemu, &file)
            .map_err(|failure| failure.context_line("cannot ask the kernel for its symbols"))?;
    }
    let table = std::fs::read_to_string(&file).context(|| format!("cannot read {}", file.display()))?;
    Symbols::from_table(&modules.place(&table))
}

/// Boots the kernel once to ask it where its functions are; it answers on its serial line.
fn write_symbols(host: Host, layout: &Layout, qemu: &Qemu, to: &Path) -> Result<()> {
    let peer = host.peer(layout)?;
    let folder = layout.bundles().join("bench-symbols").join(peer.name());
    let initrd = folder.join("initrd");
    write_initrd(host, layout, &[], &initrd)?;
    let mut boot = machine_of(host, peer.linux(), initrd, 1);
    boot.append = parameters(host, &format!("--symbols=/dev/{}", host.line()));
    let said = peer::play(&boot, &qemu.path, Duration::from_secs(120))?;
    let Some(functions) = functions(&said) else {
        let what = "the kernel's table of symbols is incomplete";
        return Err(Failure::failed(what).details(last_lines(&printable(&said), 25)));
    };
    write_atomically(to, functions.as_bytes())
}

/// The lines `address type name` and those of the modules before the line `@end`, without what the kernel itself says
/// between them.
fn functions(said: &str) -> Option<String> {
    let lines = said.lines().map(str::trim_end);
    let is_function = |line: &&str| {
        let address = line.split(' ').next().unwrap_or_default();
        address.len() == 16 && address.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let is_told = |line: &&str| line.starts_with(Modules::LINE) || is_function(line);
    let table = lines.clone().take_while(|line| *line != "@end").filter(is_told);
    let table: String = table.map(|line| format!("{line}\n")).collect();
    lines.clone().any(|line| line == "@end").then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    #[test]
    fn the_kernel_hands_the_monitor_its_words() {
        let row = rows::select(Isa::Arm64, &["sysreg-trap".to_owned()]).unwrap()[0];
        let line = parameters(Host::Nvhe, &machine(row));
        let (kernel, monitor) = line.split_once(" -- ").unwrap();
        assert!(kernel.ends_with(" kvm-arm.mode=nvhe") && kernel.contains("nokaslr"), "{kernel}");
        assert_eq!(monitor, "--vcpus=1 --memory=16 --pmu");
        assert!(!parameters(Host::Vhe, monitor).contains("nvhe"));
        assert!(parameters(Host::Svm, monitor).starts_with("console=ttyS0 "));
        let row = rows::select(Isa::X86_64, &["cpuid".to_owned()]).unwrap()[0];
        assert_eq!(machine(row), "--vcpus=1 --memory=16");
    }

    #[test]
    fn a_table_of_symbols_has_an_end() {
        let said = "[ 0.5] Run /init\r\n@module kvm 0x1\r\nffff800080000000 T _text\r\n[ 0.9] x\r\n\
                    ffff800080000010 t y [kvm]\r\n";
        assert_eq!(functions(said), None);
        let whole = format!("{said}@end\r\n[ 1.0] reboot: Power down\r\n");
        let table = "@module kvm 0x1\nffff800080000000 T _text\nffff800080000010 t y [kvm]\n";
        assert_eq!(functions(&whole).as_deref(), Some(table));
    }

    #[test]
    fn a_panic_of_the_host_has_a_name() {
        let failure = guest("[ 0.1] Kernel panic - not syncing: no init\n").unwrap_err();
        assert_eq!(failure, "the host's kernel panicked - not syncing: no init");
        assert!(guest("\n").is_err());
        assert!(guest("@bench\n").is_ok());
    }
}
