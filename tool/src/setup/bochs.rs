// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bochs, a second emulator of PCs with SVM. Unlike QEMU's, its SVM says where the next instruction is, so what the
//! hypervisor does on such CPUs is tried there. It has no boot loader of its own: GRUB boots from a disk.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::packages::Program;
use super::{find_program, last_lines, run};
use crate::bench::report::printable;
use crate::failure::{Context, Failure, Result};
use crate::usage;

/// How it is had: the emulator, its firmware and that of its display, the boot loader.
pub const PROGRAM: Program = Program {
    name: "Bochs",
    packages: &["bochs", "bochs-term", "bochsbios", "vgabios", "grub-common", "grub-pc-bin"],
};
const FIRMWARE: &str = "/usr/share/bochs/BIOS-bochs-latest";
const DISPLAY: &str = "/usr/share/vgabios/vgabios.bin";
const GRUB: &str = "/usr/lib/grub/i386-pc";
/// GRUB's first sector, and the modules that are made into the rest of it.
const FIRST: &str = "boot.img";
const MODULES: [&str; 3] = ["biosdisk", "multiboot2", "boot"];
/// Bochs stops at a prompt of its debugger before it begins.
const CONTINUE: &str = "c\n";
/// What Bochs says when the machine switches itself off; it knows no success.
const OFF: &str = "soft power off";
const TICK: Duration = Duration::from_millis(50);

/// Bochs and what boots in it.
#[derive(Debug)]
pub struct Bochs {
    program: PathBuf,
    loader: PathBuf,
}

/// Looks for Bochs without changing anything.
pub fn look() -> Option<Bochs> {
    let bochs = Bochs { program: find_program("bochs-bin")?, loader: find_program("grub-mkimage")? };
    let files = [FIRMWARE.into(), DISPLAY.into(), Path::new(GRUB).join(FIRST)];
    files.iter().all(|file: &PathBuf| file.is_file()).then_some(bochs)
}

impl Bochs {
    /// Boots a hypervisor with a bundle until the machine switches itself off, and returns what it wrote on its serial
    /// line. `limit` is the processor time that Bochs may use.
    pub fn boot(
        &self,
        folder: &Path,
        image: &Path,
        bundle: &Path,
        append: &str,
        limit: Duration,
    ) -> Result<String> {
        fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        let read = |path: &Path| fs::read(path).context(|| format!("cannot read {}", path.display()));
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, bytes).context(|| format!("cannot write {}", path.display()))
        };
        let (image, bundle) = (read(image)?, read(bundle)?);
        let plan = disk::plan(image.len(), bundle.len());
        write("grub.cfg", plan.configuration(append).as_bytes())?;
        let mut loader = Command::new(&self.loader);
        loader.args(["-O", "i386-pc", "-d", GRUB, "-p", "(hd0)", "-c", "grub.cfg", "-o", "core.img"]);
        run(loader.args(MODULES).current_dir(folder))?;
        let first = read(&Path::new(GRUB).join(FIRST))?;
        let disk = plan.disk(&first, &read(&folder.join("core.img"))?, &image, &bundle);
        let disk =
            disk.ok_or_else(|| Failure::failed("GRUB is not as it was, or does not fit before the image"))?;
        write("disk.img", &disk)?;
        write("bochsrc", configuration(plan.cylinders()).as_bytes())?;
        write("commands", CONTINUE.as_bytes())?;
        let line = folder.join("com1.txt");
        let _ = fs::remove_file(&line);
        let mut bochs = Command::new(&self.program);
        bochs.args(["-q", "-f", "bochsrc", "-rc", "commands"]).current_dir(folder);
        bochs.stdin(Stdio::piped()).stdout(Stdio::null());
        let log = fs::File::create(folder.join("messages.txt")).context(|| "cannot write a log".into())?;
        let child = bochs.stderr(log).spawn().context(|| "cannot start Bochs".into())?;
        let ended = wait(child, limit);
        let said = String::from_utf8_lossy(&fs::read(&line).unwrap_or_default()).into_owned();
        let log = fs::read(folder.join("bochs.log")).unwrap_or_default();
        let off = String::from_utf8_lossy(&log).contains(OFF);
        let what = match (ended, off) {
            (true, true) => return Ok(said),
            (true, false) => "Bochs ended before the machine was switched off",
            (false, _) => "the machine did not switch itself off in the time that it has",
        };
        Err(Failure::failed(what).details(last_lines(&printable(&said), 25)))
    }
}

/// Waits for Bochs; says whether it ended by itself.
fn wait(mut child: Child, limit: Duration) -> bool {
    while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
        if usage::own(child.id()).unwrap_or_default() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return false;
        }
        std::thread::sleep(TICK);
    }
    true
}

/// A PC whose processor has SVM, with a disk and COM1 in files, and a display that nobody needs to look at.
fn configuration(cylinders: usize) -> String {
    let (heads, sectors) = (disk::HEADS, disk::SECTORS);
    format!(
        "cpu: model=ryzen, count=1, ips=50000000, reset_on_triple_fault=0, ignore_bad_msrs=1\n\
         memory: guest=512, host=512\n\
         romimage: file={FIRMWARE}\n\
         vgaromimage: file={DISPLAY}\n\
         display_library: rfb, options=\"timeout=0\"\n\
         com1: enabled=1, mode=file, dev=com1.txt\n\
         ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
         ata0-master: type=disk, mode=flat, path=disk.img, cylinders={cylinders}, heads={heads}, spt={sectors}\n\
         boot: disk\n\
         log: bochs.log\n\
         panic: action=fatal\n\
         error: action=report\n\
         info: action=report\n\
         clock: sync=none, time0=1704067200\n"
    )
}
