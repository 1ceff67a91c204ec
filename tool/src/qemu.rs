// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The QEMU command that boots the hypervisor with a bundle, and the process that it becomes.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use turnstile_machine::GicVersion;

use crate::config::{Board, NetworkCard};
use crate::failure::{Context, Result};

mod devices;
mod machines;

pub use devices::{Behind, Drive, Forward};

/// What is booted, and on what machine.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The hypervisor's image.
    pub image: PathBuf,
    /// The bundle; without one the hypervisor says that it misses it.
    pub bundle: Option<PathBuf>,
    /// The board.
    pub board: Board,
    /// The board's device tree, if QEMU does not make it.
    pub dtb: Option<PathBuf>,
    /// The machine's memory in bytes.
    pub memory: u64,
    /// The number of physical CPUs.
    pub cpus: u64,
    /// QEMU's name of the processor model.
    pub cpu: String,
    /// The interrupt controller.
    pub gic: GicVersion,
    /// The hypervisor's command line.
    pub append: String,
    /// Whether its processors can virtualize: EL2, SVM. Without that the hypervisor can only say so. On POWER it is then QEMU
    /// itself that is the hypervisor, and takes no instructions.
    pub virtualization: bool,
    /// Count instructions: one per nanosecond of virtual time, the same in every run.
    pub counted: bool,
    /// Wait for a debugger on this TCP port.
    pub gdb: Option<u16>,
    /// Its network cards. Each is on a network of QEMU's own, which leads to this computer's.
    pub cards: Vec<NetworkCard>,
    /// Whether all of them are on one wire instead, which leads nowhere else.
    pub wired: bool,
    /// The ports of this computer that lead to guests behind the first of them.
    pub forwards: Vec<Forward>,
    /// Its disk controllers, those of each kind in their order.
    pub drives: Vec<Drive>,
    /// Whether it has an IOMMU, which its devices do not bypass.
    pub iommu: bool,
    /// More arguments, at the end.
    pub extra: Vec<OsString>,
}

impl Boot {
    /// The usual machine: it can virtualize, and consoles are frames on the serial line.
    pub fn new(image: PathBuf, bundle: PathBuf, memory: u64, cpus: u64) -> Self {
        Boot {
            image,
            bundle: Some(bundle),
            board: Board::Virt,
            dtb: None,
            memory,
            cpus,
            cpu: "max".to_owned(),
            gic: GicVersion::V3,
            append: "link=framed".to_owned(),
            virtualization: true,
            counted: false,
            gdb: None,
            cards: Vec::new(),
            wired: false,
            forwards: Vec::new(),
            drives: Vec::new(),
            iommu: false,
            extra: Vec::new(),
        }
    }

    /// QEMU's arguments. A PC's CPUs share one thread, unless `extra` names an accelerator: on threads of their own QEMU may lose a
    /// guest's state or the hypervisor's.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = self.machine().into_iter().map(OsString::from).collect();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(&["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        if self.counted {
            add(&["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-seed", "1"]);
            add(&["-rtc", "base=2024-01-01T00:00:00,clock=vm"]);
        } else if self.needs_one_thread() {
            add(&["-accel", "tcg,thread=single"]);
        }
        if let Some(port) = self.gdb {
            add(&["-gdb", &format!("tcp:127.0.0.1:{port}"), "-S"]);
        }
        // A powernv takes the command line of its tree, and no other beside it.
        let in_tree = self.dtb.is_some() && matches!(self.board, Board::Powernv9 | Board::Powernv10);
        let elsewhere = self.elsewhere();
        let append = match &elsewhere {
            Some((_, word)) => format!("{} {word}", self.append),
            None => self.append.clone(),
        };
        if !append.is_empty() && !in_tree {
            add(&["-append", append.trim_start()]);
        }
        if let Some((device, _)) = &elsewhere {
            add(&["-device", device]);
        }
        if self.iommu && self.board == Board::Q35 {
            // Before the devices that are to be behind it. Without `pt=off` QEMU has it translate nothing.
            add(&["-device", "amd-iommu,intremap=on,pt=off"]);
        }
        let cards = self.cards.iter().enumerate().flat_map(|(number, card)| self.card(number, *card));
        for word in cards.chain(self.drives.iter().enumerate().flat_map(|(at, drive)| self.drive(at, drive)))
        {
            add(&[&word]);
        }
        let beside = self.bundle.clone().filter(|_| elsewhere.is_none());
        for (option, file) in
            [("-dtb", &self.dtb), ("-kernel", &Some(self.image.clone())), ("-initrd", &beside)]
        {
            if let Some(file) = file {
                arguments.extend([option.into(), file.clone().into()]);
            }
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }

    /// How a bundle comes into a powernv that loads none so long beside an image: a device of QEMU puts it behind the firmware's
    /// memory, and a word of the hypervisor's command line says where it is.
    fn elsewhere(&self) -> Option<(String, String)> {
        /// The longest that QEMU loads beside an image, in bytes (`INITRD_MAX_SIZE` of its hw/ppc/pnv.c).
        const LONGEST: u64 = 128 << 20;
        let firmware = self.board.firmware_memory().filter(|_| self.virtualization && self.dtb.is_none())?;
        let bundle = self.bundle.as_ref()?;
        let length = bundle.metadata().ok()?.len();
        let device = || format!("loader,force-raw=on,addr={:#x},file={}", firmware.end, as_value(bundle));
        (length > LONGEST).then(|| (device(), format!("bundle={:#x}+{length:#x}", firmware.end)))
    }

    /// The command as a user would type it.
    pub fn shown(&self, program: &Path) -> String {
        let mut line = quoted(&program.to_string_lossy());
        for argument in self.arguments() {
            let argument = argument.to_string_lossy();
            line.push_str(if argument.starts_with('-') { " \\\n    " } else { " " });
            line.push_str(&quoted(&argument));
        }
        line
    }

    /// Starts QEMU with the serial line on its standard input and output, and its messages on a pipe.
    ///
    /// It gets a process group of its own, so that Ctrl-C on the terminal is the tool's alone, and it ends
    /// when the thread that started it ends, whatever that dies of.
    pub fn start(&self, program: &Path) -> Result<Child> {
        let mut command = Command::new(program);
        command.args(self.arguments()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let end_with_us = || {
            let signal = Some(rustix::process::Signal::TERM);
            rustix::process::set_parent_process_death_signal(signal).map_err(std::io::Error::from)
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; this is one system call
        // (prctl) that neither allocates nor locks.
        unsafe { command.pre_exec(end_with_us) };
        command.spawn().context(|| format!("cannot start {}", program.display()))
    }
}

/// A path inside of one of QEMU's values: a comma ends it, and two are one.
pub fn as_value(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
