// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM: Debian's kernel boots on QEMU with nothing but our monitor for user space, which runs the guest.

use std::path::Path;
use std::time::Duration;

use super::peer::{self, MEMORY};
use super::{Outcome, Run};
use crate::bench::report::printable;
use crate::bench::rows::Row;
use crate::failure::{Context, Failure, Result};
use crate::layout::{Layout, write_atomically};
use crate::meter::symbols::Symbols;
use crate::qemu::Boot;
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
}

impl Host {
    fn parameter(self) -> &'static str {
        match self {
            Host::Vhe | Host::Older => "",
            Host::Nvhe => " kvm-arm.mode=nvhe",
        }
    }

    fn peer(self, layout: &Layout) -> Result<peers::Peer> {
        match self {
            Host::Vhe | Host::Nvhe => peers::linux(layout),
            Host::Older => peers::linux_6_1(layout),
        }
    }
}

/// How many CPUs a host has at most: a sender's and another one, which further vCPUs share.
const CPUS: u16 = 2;

/// Addresses as the symbols have them; little to say; an end, not a loop, after a panic. A random offset of the
/// kernel's stack at each system call would cost what the random generator costs.
const PARAMETERS: &str = "console=ttyAMA0 nokaslr quiet panic=-1 randomize_kstack_offset=off";
/// After a boot the kernel's threads have work for this many seconds; they would be counted, too.
pub const SETTLE: u64 = 5;

/// Runs a row to its end.
pub fn run(host: Host, run: &Run<'_>) -> Result<Outcome> {
    let peer = host.peer(run.layout)?;
    // The kernel splits its command line at spaces, but not in quotes, which it takes away only at both ends.
    let words = format!("--settle={SETTLE} \"--cmdline={}\"", run.row.cmdline(run.iterations));
    let boot = boot(host, run.layout, run.row, &run.folder, &words)?;
    peer::measure(run, boot, format!("Linux {} KVM", peer.version), guest)
}

/// The machine of a KVM host that runs a row's guest; `words` are the monitor's further options.
pub fn boot(host: Host, layout: &Layout, row: &Row, folder: &Path, words: &str) -> Result<Boot> {
    let initrd = folder.join("initrd");
    write_initrd(layout, Some(row), &initrd)?;
    let cpus = row.vcpus.min(CPUS);
    let mut boot = Boot::new(host.peer(layout)?.linux(), initrd, MEMORY, cpus.into());
    boot.append = parameters(host, &format!("--guest=/guest {} --cpus={cpus} {words}", machine(row)));
    Ok(boot)
}

/// The monitor's options that make the machine of a row.
pub fn machine(row: &Row) -> String {
    let pmu = if row.pmu { " --pmu" } else { "" };
    format!("--vcpus={}{pmu}", row.vcpus)
}

/// The kernel's command line; what is behind `--` is the monitor's.
fn parameters(host: Host, monitor: &str) -> String {
    format!("{PARAMETERS}{} -- {monitor}", host.parameter())
}

fn write_initrd(layout: &Layout, row: Option<&Row>, to: &Path) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).context(|| format!("cannot read {}", path.display()));
    let monitor = read(&images::vmm(layout)?)?;
    let guest = row.map(|row| read(&layout.guest(row.guest))).transpose()?;
    write_atomically(to, &initramfs::host(&monitor, guest.as_deref())?)
}

/// The guest's lines: those of a host that neither panicked nor ended before its monitor began.
fn guest(said: &str) -> std::result::Result<String, String> {
    match said.lines().find_map(|line| Some(line.split_once("Kernel panic")?.1.trim())) {
        Some(panic) => Err(format!("the host's kernel panicked {panic}")),
        None if said.trim().is_empty() => Err("the host's kernel did not boot: it said nothing".to_owned()),
        None => Ok(said.to_owned()),
    }
}

/// The kernel's functions, as it was linked: what nVHE has in EL2 runs elsewhere.
pub fn symbols(host: Host, layout: &Layout, qemu: &Qemu) -> Result<Symbols> {
    let peer = host.peer(layout)?;
    let file = peer.folder.join(peers::SYMBOLS);
    // Both modes ask at the same time, and so may another run.
    let _lock = Lock::take(&peer.folder, "symbols.lock")?;
    if !file.is_file() {
        write_symbols(host, layout, qemu, &file)
            .map_err(|failure| failure.context_line("cannot ask the kernel for its symbols"))?;
    }
    Symbols::from_file(&file)
}

/// Boots the kernel once to ask it where its functions are; it answers on its serial line.
fn write_symbols(host: Host, layout: &Layout, qemu: &Qemu, to: &Path) -> Result<()> {
    let peer = host.peer(layout)?;
    let folder = layout.bundles().join("bench-symbols").join(peer.name());
    let initrd = folder.join("initrd");
    write_initrd(layout, None, &initrd)?;
    let mut boot = Boot::new(peer.linux(), initrd, MEMORY, 1);
    boot.append = parameters(host, "--symbols=/dev/ttyAMA0");
    let said = peer::play(&boot, &qemu.path, Duration::from_secs(120))?;
    let Some(functions) = functions(&said) else {
        let what = "the kernel's table of symbols is incomplete";
        return Err(Failure::failed(what).details(last_lines(&printable(&said), 25)));
    };
    write_atomically(to, functions.as_bytes())
}

/// The lines `address type name` before the line `@end`, without what the kernel itself says between them.
fn functions(said: &str) -> Option<String> {
    let lines = said.lines().map(str::trim_end);
    let is_function = |line: &&str| {
        let address = line.split(' ').next().unwrap_or_default();
        address.len() == 16 && address.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let table = lines.clone().take_while(|line| *line != "@end").filter(is_function);
    let table: String = table.map(|line| format!("{line}\n")).collect();
    lines.clone().any(|line| line == "@end").then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    #[test]
    fn the_kernel_hands_the_monitor_its_words() {
        let row = rows::select(&["sysreg-trap".to_owned()]).unwrap()[0];
        let line = parameters(Host::Nvhe, &machine(row));
        let (kernel, monitor) = line.split_once(" -- ").unwrap();
        assert!(kernel.ends_with(" kvm-arm.mode=nvhe") && kernel.contains("nokaslr"), "{kernel}");
        assert_eq!(monitor, "--vcpus=1 --pmu");
        assert!(!parameters(Host::Vhe, monitor).contains("nvhe"));
    }

    #[test]
    fn a_table_of_symbols_has_an_end() {
        let said =
            "[ 0.5] Run /init\r\nffff800080000000 T _text\r\n[ 0.9] x\r\nffff800080000010 t y [kvm]\r\n";
        assert_eq!(functions(said), None);
        let whole = format!("{said}@end\r\n[ 1.0] reboot: Power down\r\n");
        let table = "ffff800080000000 T _text\nffff800080000010 t y [kvm]\n";
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
