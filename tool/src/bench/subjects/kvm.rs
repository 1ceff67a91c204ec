// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux KVM: Debian's kernel boots on QEMU with nothing but our monitor for user space, which runs the guest.

use std::path::Path;
use std::time::Duration;

use super::peer::{self, MEMORY};
use super::{Outcome, Run};
use crate::bench::rows::Row;
use crate::failure::{Context, Failure, Result};
use crate::layout::{Layout, write_atomically};
use crate::meter::symbols::Symbols;
use crate::qemu::Boot;
use crate::setup::{images, initramfs, peers, qemu};

/// Where the host kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In EL2, by the Virtualization Host Extensions.
    Vhe,
    /// In EL1, with a part of KVM in EL2.
    Nvhe,
}

impl Mode {
    fn parameter(self) -> &'static str {
        match self {
            Mode::Vhe => "",
            Mode::Nvhe => " kvm-arm.mode=nvhe",
        }
    }
}

/// Addresses as the symbols have them; little to say; an end, not a loop, after a panic. A random offset of the
/// kernel's stack at each system call would cost what the random generator costs.
const PARAMETERS: &str = "console=ttyAMA0 nokaslr quiet panic=-1 randomize_kstack_offset=off";
/// After a boot the kernel's threads have work for this many seconds; they would be counted, too.
pub const SETTLE: u64 = 5;

/// Runs a row to its end.
pub fn run(mode: Mode, run: &Run<'_>) -> Result<Outcome> {
    let host = peers::linux(run.layout)?;
    let words = format!("--settle={SETTLE} --cmdline=iterations={}", run.iterations);
    let boot = boot(mode, run.layout, &host, run.row, &run.folder, &words)?;
    peer::measure(run, boot, format!("Linux {} KVM", host.version), guest)
}

/// The machine of a KVM host that runs a row's guest; `words` are the monitor's further options.
pub fn boot(
    mode: Mode,
    layout: &Layout,
    host: &peers::Peer,
    row: &Row,
    folder: &Path,
    words: &str,
) -> Result<Boot> {
    let initrd = folder.join("initrd");
    write_initrd(layout, Some(row), &initrd)?;
    let mut boot = Boot::new(host.linux(), initrd, MEMORY, row.vcpus.into());
    boot.append = parameters(mode, &format!("--guest=/guest {} {words}", machine(row)));
    Ok(boot)
}

/// The monitor's options that make the machine of a row.
pub fn machine(row: &Row) -> String {
    let pmu = if row.pmu { " --pmu" } else { "" };
    format!("--vcpus={}{pmu}", row.vcpus)
}

/// The kernel's command line; what is behind `--` is the monitor's.
fn parameters(mode: Mode, monitor: &str) -> String {
    format!("{PARAMETERS}{} -- {monitor}", mode.parameter())
}

fn write_initrd(layout: &Layout, row: Option<&Row>, to: &Path) -> Result<()> {
    let read = |path: &Path| std::fs::read(path).context(|| format!("cannot read {}", path.display()));
    let monitor = read(&images::vmm(layout)?)?;
    let guest = row.map(|row| read(&layout.guest(row.name))).transpose()?;
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

/// The prefix of the functions that nVHE has in EL2.
const NVHE_PREFIX: &str = "__kvm_nvhe_";
/// Where nVHE's EL2 exception vectors are among them.
const NVHE_VECTORS: &str = "__kvm_nvhe___kvm_hyp_vector";

/// The kernel's functions. With nVHE those that run in EL2 are where the meter saw EL2's exception vectors.
pub fn symbols(layout: &Layout, mode: Mode, vectors: u64) -> Result<Symbols> {
    let host = peers::linux(layout)?;
    let file = host.folder.join(peers::SYMBOLS);
    if !file.is_file() {
        write_symbols(layout, &host, &file)
            .map_err(|failure| failure.context_line("cannot ask the kernel for its symbols"))?;
    }
    let table = std::fs::read_to_string(&file).context(|| format!("cannot read {}", file.display()))?;
    match mode {
        Mode::Vhe => Symbols::from_table(&table),
        Mode::Nvhe => {
            let moved = relocate(&table, vectors);
            let unnamed = || Failure::failed(format!("{} names no {NVHE_VECTORS}", file.display()));
            Symbols::from_table(&moved.ok_or_else(unnamed)?)
        }
    }
}

/// Boots the kernel once to ask it where its functions are.
fn write_symbols(layout: &Layout, host: &peers::Peer, to: &Path) -> Result<()> {
    let qemu = qemu::ensure(layout, None)?;
    let folder = layout.bundles().join("bench-symbols");
    let (initrd, table) = (folder.join("initrd"), folder.join("table"));
    write_initrd(layout, None, &initrd)?;
    let mut boot = Boot::new(host.linux(), initrd, MEMORY, 1);
    boot.append = parameters(Mode::Vhe, "--symbols=/dev/vport0p1");
    // A comma ends a value of QEMU's; two are one.
    let path = table.to_string_lossy().replace(',', ",,");
    let port = ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=table"];
    boot.extra = port.map(Into::into).to_vec();
    boot.extra.extend(["-chardev".into(), format!("file,id=table,path={path}").into()]);
    let said = peer::play(&boot, &qemu.path, Duration::from_secs(120))?;
    let text = std::fs::read_to_string(&table).context(|| "the kernel told no symbols".into())?;
    let Some(functions) = text.strip_suffix("@end\n") else {
        return Err(Failure::failed("the kernel's table of symbols is incomplete").details(said));
    };
    write_atomically(to, functions.as_bytes())
}

/// Moves nVHE's functions by as much as its vectors were moved; `None` if the table does not name them.
fn relocate(table: &str, vectors: u64) -> Option<String> {
    let parse = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let name = rest.split_whitespace().nth(1)?.to_owned();
        Some((u64::from_str_radix(address, 16).ok()?, rest.to_owned(), name))
    };
    let symbols: Vec<_> = table.lines().filter_map(parse).collect();
    let (linked, ..) = symbols.iter().find(|(.., name)| name == NVHE_VECTORS)?;
    let offset = vectors.wrapping_sub(*linked);
    let mut moved = String::with_capacity(table.len());
    for (address, rest, name) in &symbols {
        let offset = if name.starts_with(NVHE_PREFIX) { offset } else { 0 };
        moved.push_str(&format!("{:016x} {rest}\n", address.wrapping_add(offset)));
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    #[test]
    fn the_kernel_hands_the_monitor_its_words() {
        let row = rows::select(&["sysreg-trap".to_owned()]).unwrap()[0];
        let line = parameters(Mode::Nvhe, &machine(row));
        let (kernel, monitor) = line.split_once(" -- ").unwrap();
        assert!(kernel.ends_with(" kvm-arm.mode=nvhe") && kernel.contains("nokaslr"), "{kernel}");
        assert_eq!(monitor, "--vcpus=1 --pmu");
        assert!(!parameters(Mode::Vhe, monitor).contains("nvhe"));
    }

    #[test]
    fn a_panic_of_the_host_has_a_name() {
        let failure = guest("[ 0.1] Kernel panic - not syncing: no init\n").unwrap_err();
        assert_eq!(failure, "the host's kernel panicked - not syncing: no init");
        assert!(guest("\n").is_err());
        assert!(guest("@bench\n").is_ok());
    }

    #[test]
    fn only_what_runs_in_el2_moves_with_its_vectors() {
        let table = "ffff800080000000 T _text\nffff800081000800 T __kvm_nvhe___kvm_hyp_vector\n\
                     ffff800081000000 t __kvm_nvhe___guest_enter\n";
        let moved = relocate(table, 0x4000_0800).unwrap();
        assert_eq!(
            moved,
            "ffff800080000000 T _text\n0000000040000800 T __kvm_nvhe___kvm_hyp_vector\n\
             0000000040000000 t __kvm_nvhe___guest_enter\n"
        );
        assert_eq!(relocate("ffff800080000000 T _text\n", 1), None);
    }
}
