// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of Xen in which guests have disks or networks: a first domain with Debian's Linux has the back ends, and starts guests with the
//! same kernel, whose program does the work of a row. As on KVM the figure is the difference of two boots.
//!
//! The first domain's CPUs come first, and its virtual CPUs stay on them; each guest has one behind them. Outside the guests is EL2,
//! and all that the first domain executes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::plan::{DONE, Difference, MEMORY as GUEST_MEMORY, with_work};
use super::super::{Run, disks, networks, peer};
use super::{guest as lines_of, peers};
use crate::bench::report::printable;
use crate::bench::rows::Row;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::meter::Options;
use crate::meter::reading::{Reading, Total};
use crate::qemu::{Boot, as_value};
use crate::setup::debian::{self, Debian, Flavour};
use crate::setup::toolstack::{self, Devices, Toolstack};
use crate::setup::{initramfs, last_lines};

/// The first process of the first domain, that of guests, and what xl runs for disks and for network devices.
const DOM0: &str = include_str!("dom0");
const DOMU: &str = include_str!("domu");
const ATTACH: &str = include_str!("attach");
const JOIN: &str = include_str!("join");

/// The machine's memory in bytes, the first domain's in MiB.
const MEMORY: u64 = 2 << 30;
const DOM0_MEMORY: u64 = 768;
/// Where QEMU puts the first domain's kernel and its initramfs.
const KERNEL: u64 = 0x6000_0000;
const INITRD: u64 = 0x6800_0000;
/// Xen numbers virtual machines in the order in which they are made, from 1 on.
const DOM0_VMID: u16 = 1;
/// The processor time of a run.
const LIMIT: Duration = Duration::from_secs(600);
/// Seconds of the machine's time that guests may take.
const PATIENCE: u64 = 300;

/// Whether a row is measured so.
pub fn has(row: &Row) -> bool {
    row.isa == Isa::Arm64 && (disks::has(row) || networks::has(row))
}

/// Gets what these rows need beside Xen, if it is not in the cache.
pub fn fetch(layout: &Layout) -> Result<()> {
    debian::ensure(layout, Isa::Arm64, Flavour::Cloud)?;
    toolstack::ensure(layout).map(drop)
}

/// A guest of the first domain.
struct Guest {
    /// The line of xl's configuration with its device.
    device: String,
    /// More words of its kernel's command line.
    append: String,
    /// What its program is told in the first boot and in the second one.
    told: [String; 2],
}

/// The machine of a row.
struct Machine {
    devices: Devices,
    /// How many CPUs the first domain has: one for each guest's back end.
    dom0_cpus: usize,
    guests: Vec<Guest>,
    /// How many operations the second boot does more.
    operations: u64,
}

impl Machine {
    /// With a disk in the memory of the first domain, or with two guests on a bridge.
    fn of(row: &Row, iterations: u64) -> Self {
        if disks::has(row) {
            let operations = disks::operations(row, iterations);
            let device =
                "disk = ['vdev=xvda,backendtype=phy,format=raw,script=/bin/attach,target=/dev/ram0']";
            let guest = Guest {
                device: device.to_owned(),
                append: String::new(),
                told: disks::told(row, operations),
            };
            return Machine { devices: Devices::Disks, dom0_cpus: 1, guests: vec![guest], operations };
        }
        let operations = networks::operations(row, iterations);
        let guest = |at: usize| {
            let host = at + 1;
            Guest {
                device: format!("vif = ['mac=00:16:3e:00:00:{host:02x},bridge=lan,script=/bin/join']"),
                append: format!(" {}", networks::address(at)),
                told: networks::told(row, at, operations),
            }
        };
        let guests = [0, 1].map(guest).into();
        Machine { devices: Devices::Networks, dom0_cpus: 2, guests, operations }
    }

    /// xl's configuration of a guest.
    fn config(&self, at: usize, guest: &Guest) -> String {
        let cpu = self.dom0_cpus + at;
        let mut text = format!("name = \"guest{at}\"\nkernel = \"/linux\"\nramdisk = \"/initrd{at}\"\n");
        let Guest { device, append, .. } = guest;
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "memory = {GUEST_MEMORY}\nvcpus = 1\ncpus = \"{cpu}\"\n{device}\n\
             extra = \"console=hvc0 quiet rdinit=/first{append} turnstile.run=work,poweroff\"\n\
             on_poweroff = \"destroy\"\non_reboot = \"destroy\"\non_crash = \"destroy\"\n"
        );
        text
    }
}

/// Boots twice, and counts.
pub fn measure(run: &Run<'_>) -> Result<Difference> {
    let machine = Machine::of(run.row, run.iterations);
    let less = count(run, &machine, 0)?;
    let more = count(run, &machine, 1)?;
    let version = format!("Xen {}", peers::xen(run.layout)?.version);
    Difference::new(machine.operations, [less, more], version, String::new())
}

/// Counts one of the two boots.
fn count(run: &Run<'_>, machine: &Machine, number: usize) -> Result<Total> {
    let folder = run.folder.join(number.to_string());
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let toolstack = toolstack::ensure(run.layout)?;
    let initrd = write_dom0(run.layout, &toolstack, machine, number, &folder)?;
    let out = folder.join("reading.json");
    let mut boot = boot(machine, peers::xen(run.layout)?.xen(), &toolstack.kernel(), &initrd);
    if machine.devices == Devices::Networks {
        boot.extra.extend(networks::emulator(run.variant.turn.unwrap_or(networks::TURN)));
    }
    let options = Options { host: Some(DOM0_VMID), ..Options::default() };
    boot.extra.extend(["-plugin".into(), options.argument(&run.meter, &out)]);
    let said = peer::play(&boot, &run.qemu.path, run.limit.max(LIMIT))?;
    judge(&said, machine.guests.len())?;
    counted(&Reading::load(&out)?, machine.guests.len())
}

/// What was counted, if guests were seen on their own CPUs alone: had the first domain another VMID, it would be taken for one.
fn counted(reading: &Reading, guests: usize) -> Result<Total> {
    let cpus: BTreeSet<u32> = reading.groups.iter().map(|group| group.cpu).collect();
    match cpus.len() == guests {
        true => Ok(reading.total.clone()),
        false => {
            let what =
                format!("there are {guests} guests, and the meter has seen some on {} CPUs", cpus.len());
            Err(Failure::failed(what)
                .help(format!("look for the VMID of Xen's first domain: is it {DOM0_VMID}?")))
        }
    }
}

/// The machine: Xen, and the first domain.
fn boot(machine: &Machine, xen: PathBuf, kernel: &Path, initrd: &Path) -> Boot {
    let dom0_cpus = machine.dom0_cpus;
    let cpus = dom0_cpus + machine.guests.len();
    let mut boot = Boot::new(xen, PathBuf::new(), MEMORY, cpus as u64);
    boot.bundle = None;
    boot.counted = true;
    boot.append = format!(
        "console=dtuart dtuart=/pl011@9000000 dom0_mem={DOM0_MEMORY}M dom0_max_vcpus={dom0_cpus} dom0_vcpus_pin"
    );
    let bootargs = format!("console=hvc0 quiet patience={PATIENCE}");
    let loaders = [
        format!("guest-loader,addr={KERNEL:#x},kernel={},bootargs={bootargs}", as_value(kernel)),
        format!("guest-loader,addr={INITRD:#x},initrd={}", as_value(initrd)),
    ];
    boot.extra = loaders.into_iter().flat_map(|loader| ["-device".into(), loader.into()]).collect();
    boot
}

/// Writes the first domain's initramfs.
fn write_dom0(
    layout: &Layout,
    toolstack: &Toolstack,
    machine: &Machine,
    number: usize,
    folder: &Path,
) -> Result<PathBuf> {
    let debian = debian::ensure(layout, Isa::Arm64, Flavour::Cloud)?;
    let program = |name: &str, text: &str| (format!("bin/{name}"), text.as_bytes().to_vec());
    let mut files = vec![program("attach", ATTACH), program("join", JOIN)];
    let mut sources = toolstack.programs();
    sources.push(("bin/busybox".to_owned(), debian.kernel.with_file_name("busybox")));
    sources.push(("linux".to_owned(), toolstack.kernel()));
    sources.extend(named("modules", toolstack.back_ends(machine.devices)));
    for (name, file) in sources {
        files.push((name, read(&file)?));
    }
    for (at, guest) in machine.guests.iter().enumerate() {
        files.push((format!("guest{at}"), machine.config(at, guest).into_bytes()));
        let told = guest.told.get(number).map_or("", String::as_str);
        let front_ends = toolstack.front_ends(machine.devices);
        files.push((format!("initrd{at}"), guest_initrd(layout, &debian, front_ends, told, folder)?));
    }
    let to = folder.join("initrd");
    write_atomically(&to, &initramfs::host(DOM0.as_bytes(), &files)?)?;
    Ok(to)
}

/// A guest's initramfs: that of KVM's guests, with other drivers.
fn guest_initrd(
    layout: &Layout,
    debian: &Debian,
    front_ends: Vec<PathBuf>,
    told: &str,
    folder: &Path,
) -> Result<Vec<u8>> {
    let drivers = named("frontends", front_ends).into_iter();
    let drivers = drivers.map(|(name, file)| Ok((name, read(&file)?))).collect::<Result<Vec<_>>>()?;
    let first = folder.join("drivers.cpio");
    write_atomically(&first, &initramfs::with_first(&debian.initrd, DOMU, "frontends", &drivers)?)?;
    with_work(layout, Isa::Arm64, &first, told)
}

/// Files in a folder of an initramfs, under names that sort as they come here.
fn named(folder: &str, files: Vec<PathBuf>) -> Vec<(String, PathBuf)> {
    let name = |(at, file): (usize, PathBuf)| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (format!("{folder}/{at}-{name}"), file)
    };
    files.into_iter().enumerate().map(name).collect()
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).context(|| format!("cannot read {}", file.display()))
}

/// Says what went wrong in a boot with so many guests, of all that was written.
fn judge(said: &str, guests: usize) -> Result<()> {
    let said = lines_of(said).map_err(|what| Failure::failed(printable(&what)))?;
    // Terminals add a return to the end of a line, each its own.
    let said: String = said.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let details = |of: &str| last_lines(&printable(of), 25);
    if let Some(panic) = said.lines().find_map(|line| Some(line.split_once("Kernel panic")?.1)) {
        let what = format!("the kernel of the first domain, or of a guest, panicked{}", printable(panic));
        return Err(Failure::failed(what).details(details(&said)));
    }
    for guest in 0..guests {
        let own = console(&said, guest).unwrap_or_default();
        if !own.lines().any(|line| line.trim() == DONE) {
            let what = match own.contains("turnstile: ") {
                true => format!("Xen's guest {guest} did not say \"{DONE}\""),
                false => format!("Xen's guest {guest} did not start"),
            };
            return Err(Failure::failed(what).details(details(if own.is_empty() { &said } else { own })));
        }
    }
    match said.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        Some(error) => {
            let what = format!("Xen's first domain reports: {}", printable(error));
            Err(Failure::failed(what).details(details(&said)))
        }
        None => Ok(()),
    }
}

/// What a guest wrote, and xl of it.
fn console(said: &str, guest: usize) -> Option<&str> {
    let (_, own) = said.split_once(&format!("@guest guest{guest}\n"))?;
    Some(own.split_once("@guest ").map_or(own, |(own, _)| own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;

    fn machine(name: &str) -> Machine {
        Machine::of(rows::select(Isa::Arm64, &[name.to_owned()]).unwrap()[0], 4096)
    }

    #[test]
    fn each_guest_has_a_cpu_behind_the_first_domains() {
        let machine = machine("packet");
        let [first, second] = [0, 1].map(|at| machine.config(at, &machine.guests[at]));
        assert!(first.contains("cpus = \"2\"\nvif = ['mac=00:16:3e:00:00:01,"), "{first}");
        assert!(second.contains("cpus = \"3\"\n") && second.contains("ramdisk = \"/initrd1\"\n"), "{second}");
        assert!(second.contains(" turnstile.ip=10.0.0.2/24 turnstile.run=work,poweroff\""), "{second}");
        let boot = boot(&machine, "xen".into(), Path::new("linux"), Path::new("initrd"));
        assert!(
            boot.cpus == 4 && boot.append.ends_with(" dom0_max_vcpus=2 dom0_vcpus_pin"),
            "{}",
            boot.append
        );
    }

    #[test]
    fn a_disk_is_one_of_the_first_domain() {
        let machine = machine("disk-batch");
        let config = machine.config(0, &machine.guests[0]);
        assert!(config.contains("cpus = \"1\"\ndisk = ['vdev=xvda,backendtype=phy,"), "{config}");
        assert_eq!(machine.operations, 256);
        assert_eq!(machine.guests[0].told[1], "disk-batch 0000000512\n");
    }

    #[test]
    fn a_first_domain_that_is_taken_for_a_guest_is_noticed() {
        let group = |cpu| crate::meter::reading::Group { cpu, ..Default::default() };
        let reading = |cpus: &[u32]| Reading {
            groups: cpus.iter().map(|cpu| group(*cpu)).collect(),
            ..Reading::default()
        };
        assert!(counted(&reading(&[0, 1, 1]), 2).is_ok());
        let failure = counted(&reading(&[0, 1, 2]), 2).unwrap_err().full();
        assert!(failure.contains("2 guests, and the meter has seen some on 3 CPUs"), "{failure}");
    }

    #[test]
    fn what_failed_has_a_name() {
        let xen = "(XEN) Xen version 4.17\r\n";
        let good =
            format!("{xen}@guest guest0\r\r\nturnstile: work ok\r\n@guest guest1\r\nturnstile: work ok\r\n");
        assert!(judge(&good, 2).is_ok());
        let error = |said: &str| judge(&format!("{xen}{said}"), 2).unwrap_err().full();
        let absent = error("@guest guest0\nturnstile: work ok\n@guest guest1\nxl: no memory\n");
        assert!(absent.contains("guest 1 did not start") && absent.contains("xl: no memory"), "{absent}");
        let failed = error("@guest guest0\nturnstile: work failed: packet\n@guest guest1\n");
        assert!(failed.contains("guest 0 did not say") && failed.contains("failed: packet"), "{failed}");
        assert!(
            error("[1] Kernel panic - not syncing: no init\n").contains("panicked - not syncing: no init")
        );
        let late = good + "@error xenstored ended with status 1\n";
        assert!(judge(&late, 2).unwrap_err().full().contains("reports: xenstored ended"));
    }
}
