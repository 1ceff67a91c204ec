// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile with the guests that other hypervisors have in rows of disks and networks: Debian's Linux, whose program does the work of a
//! row. As theirs, the figure is a difference of two boots, of which one does more.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::plan::{DONE, Difference, LIMIT, MEMORY, debian, with_work};
use super::{Run, disks, mitigations, networks, turnstile};
use crate::batch;
use crate::bench::report::printable;
use crate::bench::rows::Row;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::write_atomically;
use crate::machine;
use crate::meter::Options;
use crate::meter::reading::{Reading, Total};
use crate::setup::debian::{self, Flavour};
use crate::setup::{images, last_lines};

/// Whether it is a row of such guests.
pub fn has(row: &Row) -> bool {
    disks::has(row) || networks::has(row)
}

/// Boots twice, and counts.
pub fn measure(run: &Run<'_>) -> Result<Difference> {
    let (operations, guests) = guests(run.row, run.iterations);
    let (less, _) = count(run, &guests, 0)?;
    let (more, mitigations) = count(run, &guests, 1)?;
    Difference::new(operations, [less, more], turnstile::version(), mitigations)
}

/// A guest.
struct Guest {
    /// More words of its kernel's command line.
    append: String,
    /// What its program is told in the first boot and in the second one.
    told: [String; 2],
}

/// How many operations the second boot does more, and the guests that do them.
fn guests(row: &Row, usual: u64) -> (u64, Vec<Guest>) {
    if !networks::has(row) {
        let operations = disks::operations(row, usual);
        return (operations, vec![Guest { append: String::new(), told: disks::told(row, operations) }]);
    }
    let operations = networks::operations(row, usual);
    let guest = |at| Guest { append: networks::address(at), told: networks::told(row, at, operations) };
    (operations, [0, 1].map(guest).into())
}

/// Counts one of the two boots. Also says what the hypervisor does against speculation.
fn count(run: &Run<'_>, guests: &[Guest], boot: usize) -> Result<(Total, String)> {
    let folder = run.folder.join(boot.to_string());
    std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let text = config(run, guests, &initrds(run, guests, boot, &folder)?)?;
    let image = images::hypervisor_with(run.layout, run.row.isa, run.variant.features)?;
    let mut boot = machine::prepare_own(run.layout, &folder.join("machine"), &text, &image)?;
    let told = turnstile::vary(&mut boot, run);
    let out = folder.join("reading.json");
    if run.row.peer {
        boot.extra.extend(networks::emulator(run.variant.turn.unwrap_or(networks::TURN)));
    }
    boot.extra.extend(["-plugin".into(), Options::default().argument(&run.meter, &out)]);
    let transcript = batch::run(&boot, &run.qemu.path, run.limit.max(LIMIT), |_| {})?;
    let details = || last_lines(&printable(&transcript.all()), 25);
    let is_done = |console: &String| console.lines().any(|line| line.trim() == DONE);
    if let Some(at) = transcript.consoles.iter().position(|console| !is_done(console)) {
        let what = format!("guest {} did not say \"{DONE}\"", at + 1);
        return Err(Failure::failed(what).details(details()));
    }
    if transcript.done != Some(0) {
        return Err(Failure::failed("the machine did not end in order").details(details()));
    }
    let mitigations = mitigations::of_turnstile(&printable(&transcript.text), told);
    Ok((Reading::load(&out)?.total, mitigations))
}

/// The initramfs of each guest, with the program and what that is told in this boot.
fn initrds(run: &Run<'_>, guests: &[Guest], boot: usize, folder: &Path) -> Result<Vec<PathBuf>> {
    let drivers = folder.join("drivers.cpio");
    write_atomically(&drivers, &debian::initrd_with_drivers(run.layout, run.row.isa, Flavour::Cloud)?)?;
    let initrd = |(at, guest): (usize, &Guest)| {
        let initrd = folder.join(format!("initramfs{at}"));
        let told = guest.told.get(boot).map_or("", String::as_str);
        write_atomically(&initrd, &with_work(run.layout, run.row.isa, &drivers, told)?)?;
        Ok(initrd)
    };
    guests.iter().enumerate().map(initrd).collect()
}

/// The machine: guests like those of the other hypervisors, and what a service is for them. An emulator that others keep from running is
/// not to be taken for a service that loops.
fn config(run: &Run<'_>, guests: &[Guest], initrds: &[PathBuf]) -> Result<String> {
    let kernel = debian(run.layout, run.row.isa)?.kernel;
    let (device, service) = match run.row.peer {
        true => ("networks = [\"lan\"]", "[[network]]\nname = \"lan\"\ntime-limit = \"1s\"\n"),
        false => ("disks = [\"data\"]", "[[disk]]\nname = \"data\"\nsize = \"4MiB\"\ntime-limit = \"1s\"\n"),
    };
    let mut text = format!("{}\n", run.variant.platform.table());
    for (at, (guest, initrd)) in guests.iter().zip(initrds).enumerate() {
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "[[vm]]\nname = \"guest{at}\"\nkernel = {kernel:?}\ninitrd = {initrd:?}\nvcpus = 1\nmemory = \"{MEMORY}MiB\"\n\
             cmdline = \"{}\"\n{device}\n\n",
            cmdline(run.row.isa, &guest.append),
        );
    }
    Ok(text + service)
}

/// The command line of the kernel of a guest that does work and powers off, with further words.
pub fn cmdline(isa: Isa, more: &str) -> String {
    let console = match isa {
        // The device tree tells it.
        Isa::Arm64 => "",
        Isa::X86_64 => "console=ttyS0",
        Isa::Power64 => "console=hvc0",
    };
    let words = [console, "quiet", more, "turnstile.run=work,poweroff"];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rows;
    use crate::bench::subjects::Subject;

    fn row(isa: Isa, name: &str) -> &'static Row {
        rows::select(isa, &[name.to_owned()]).unwrap()[0]
    }

    #[test]
    fn it_has_the_rows_of_the_others_devices() {
        for isa in Isa::ALL {
            let rows = rows::of(isa).iter().filter(|row| Subject::TurnstileLinux.has(row));
            let names: Vec<_> = rows.map(|row| row.name).collect();
            let networks = ["packet", "packet-1500", "packet-batch", "segment", "packet-sleeping"];
            assert_eq!(names, [&networks[..], &["disk-read", "disk-write", "disk-batch"]].concat(), "{isa}");
        }
    }

    #[test]
    fn guests_are_told_as_those_of_the_others() {
        let (operations, guests) = guests(row(Isa::Arm64, "packet"), 65_536);
        assert_eq!((operations, guests.len()), (4096, 2));
        assert!(guests[1].told[1].starts_with("answer-packet ") && guests[1].append.ends_with("10.0.0.2/24"));
        let (operations, guests) = super::guests(row(Isa::Arm64, "disk-batch"), 65_536);
        assert_eq!((operations, guests.len()), (256, 1));
        assert_eq!(guests[0].told[0], "disk-batch 0000000256\n");
    }

    #[test]
    fn a_kernel_is_told_its_console() {
        assert_eq!(cmdline(Isa::Arm64, ""), "quiet turnstile.run=work,poweroff");
        assert_eq!(cmdline(Isa::Power64, "a=b"), "console=hvc0 quiet a=b turnstile.run=work,poweroff");
    }
}
