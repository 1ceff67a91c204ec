// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The QEMU command that boots the hypervisor with a bundle, and the process that it becomes.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use turnstile_bundle::DriveKind;
use turnstile_machine::GicVersion;

use crate::config::{Board, NetworkCard};
use crate::failure::{Context, Result};

/// A TCP port of this computer that leads to one of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The port of this computer's loopback interface.
    pub host: u16,
    /// The guest's port.
    pub guest: u16,
}

/// A disk controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its kind.
    pub kind: DriveKind,
    /// Its number among those of the kind.
    pub number: usize,
    /// What is behind it; nothing that anybody uses if there is none.
    pub behind: Option<Behind>,
}

/// A disk behind a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// A file has its bytes.
    File {
        /// The file.
        file: PathBuf,
        /// Whether that is a qcow2 image, and not the disk's bytes as they are.
        is_qcow2: bool,
        /// Whether it is only read.
        read_only: bool,
        /// What the disk is called.
        serial: String,
    },
    /// It keeps nothing, and reads as zeros. Each command takes as long as any, however many there are at once.
    Zeros {
        /// How large it is, in bytes.
        bytes: u64,
        /// How long a command takes, in nanoseconds.
        latency: u64,
    },
}

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

/// What a virtio device needs to be behind an IOMMU: others of QEMU's reach memory past it.
const BEHIND_IOMMU: &str = ",iommu_platform=on";

/// QEMU's device that is such a card.
const fn device(card: NetworkCard) -> &'static str {
    match card {
        NetworkCard::Virtio => "virtio-net-pci",
        NetworkCard::E1000e => "e1000e",
    }
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

    /// The arguments that add a network card. It has no program for firmware: that would look for something to boot.
    fn card(&self, number: usize, card: NetworkCard) -> Vec<String> {
        let mut device = format!("{},netdev=net{number},romfile=", device(card));
        if card == NetworkCard::Virtio && self.iommu {
            device.push_str(",disable-legacy=on");
            device.push_str(BEHIND_IOMMU);
        }
        let mut arguments = self.place(number, &mut device);
        let network = if self.wired { format!("hubport,id=net{number},hubid=0") } else { self.user(number) };
        arguments.extend(["-netdev".into(), network, "-device".into(), device]);
        arguments
    }

    /// A card's network of QEMU's own.
    fn user(&self, number: usize) -> String {
        let mut network = format!("user,id=net{number}");
        for Forward { host, guest } in self.forwards.iter().filter(|_| number == 0) {
            network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}"));
        }
        network
    }

    /// The arguments that give a device a place of its own, where there is not one for all, and that a device needs, which says so.
    fn place(&self, number: usize, device: &mut String) -> Vec<String> {
        if !matches!(self.board, Board::Powernv9 | Board::Powernv10) {
            return Vec::new();
        }
        // A bridge has one port, and that one slot.
        let bridge = format!("pnv-phb,id=phb{number},chip-id=0,index={number}");
        let port = format!("pnv-phb-root-port,id=port{number},bus=phb{number}");
        device.push_str(&format!(",bus=port{number}"));
        ["-device".into(), bridge, "-device".into(), port].into()
    }

    /// The arguments that add a disk controller, behind all cards. What a guest flushes is in the file then, whatever becomes of QEMU or of this
    /// computer: with `writeback`, QEMU asks the computer for that when it is flushed, and not before.
    fn drive(&self, at: usize, Drive { kind, number, behind }: &Drive) -> Vec<String> {
        let id = format!("{kind}{number}");
        let (drive, serial) = match behind {
            Some(Behind::Zeros { bytes, latency }) => {
                (format!("driver=null-co,read-zeroes=on,size={bytes},latency-ns={latency}"), "zeros")
            }
            Some(Behind::File { file, is_qcow2, read_only, serial }) => {
                let format = if *is_qcow2 { "qcow2" } else { "raw" };
                let read_only = if *read_only { ",readonly=on" } else { "" };
                let file = as_value(file);
                (format!("format={format},cache=writeback{read_only},file={file}"), serial.as_str())
            }
            None => ("driver=null-co,size=1M".to_owned(), "none"),
        };
        let mut device = match kind {
            DriveKind::Nvme => format!("nvme,drive={id},serial={serial}"),
            DriveKind::Virtio => {
                let behind = if self.iommu { BEHIND_IOMMU } else { "" };
                format!("virtio-blk-pci,drive={id},serial={serial},disable-legacy=on{behind}")
            }
        };
        let mut arguments = self.place(self.cards.len() + at, &mut device);
        let drive = format!("if=none,id={id},{drive}");
        arguments.extend(["-drive".into(), drive, "-device".into(), device]);
        arguments
    }

    /// Whether QEMU has to run the machine's CPUs in turn: a PC's FXRSTOR, XRSTOR, FRSTOR, FLDENV and FNINIT, on any CPU, write the
    /// first CPU's hidden flags (`cpu_clear_ignne` of QEMU's target/i386) with neither lock nor atomic operation. On threads of their
    /// own they undo what the first CPU's VMRUN or #VMEXIT has just changed there, nested paging and GIF among it. Who asks for an
    /// accelerator in `extra` gets that.
    fn needs_one_thread(&self) -> bool {
        let is_pc = matches!(self.board, Board::Q35 | Board::Pc | Board::Microvm);
        let is_chosen = |argument: &OsString| argument == "-accel" || argument == "--accel";
        is_pc && self.virtualization && self.cpus > 1 && !self.extra.iter().any(is_chosen)
    }

    /// The arguments that say what machine it is.
    fn machine(&self) -> Vec<String> {
        match self.board {
            Board::Virt => {
                let el2 = if self.virtualization { "on" } else { "off" };
                let gic = match self.gic {
                    GicVersion::V2 => 2,
                    GicVersion::V3 => 3,
                };
                let iommu = if self.iommu { ",iommu=smmuv3" } else { "" };
                // A random seed in the device tree would make runs differ.
                let machine =
                    format!("virt,virtualization={el2},gic-version={gic},dtb-randomness=off{iommu}");
                let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
                ["-machine", &machine, "-cpu", &self.cpu, "-smp", &cpus, "-m", &memory]
                    .map(str::to_owned)
                    .to_vec()
            }
            Board::Q35 | Board::Pc | Board::Microvm => self.pc(),
            Board::Powernv9 | Board::Powernv10 => self.powernv(),
            // Nothing about it can be chosen.
            Board::Rpi4 => ["-machine", "raspi4b"].map(str::to_owned).to_vec(),
        }
    }

    /// The arguments that say what machine with OPAL it is. CPUs are cores of one thread. The service processor is what
    /// switches the machine off.
    fn powernv(&self) -> Vec<String> {
        let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
        if !self.virtualization {
            let cpu = if self.board == Board::Powernv10 { "power10" } else { "power9" };
            // Its own firmware, not SLOF, which takes billions of instructions.
            let machine = "pseries,x-vof=on,ic-mode=xive";
            return ["-machine", machine, "-cpu", cpu, "-smp", &cpus, "-m", &memory]
                .map(str::to_owned)
                .to_vec();
        }
        let machine = ["-machine", self.board.name(), "-smp", &cpus, "-m", &memory];
        let processor = ["-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-bt,bmc=bmc,irq=10"];
        machine.into_iter().chain(processor).map(str::to_owned).collect()
    }

    /// The arguments that say what PC it is.
    fn pc(&self) -> Vec<String> {
        let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
        let cpu = match self.virtualization {
            true => self.cpu.clone(),
            false => format!("{},-svm", self.cpu),
        };
        ["-machine", self.board.name(), "-cpu", &cpu, "-smp", &cpus, "-m", &memory]
            .map(str::to_owned)
            .to_vec()
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
mod tests {
    use super::*;

    #[test]
    fn command_can_be_pasted_into_a_shell() {
        let mut boot = Boot::new("a b/image".into(), "bundle".into(), 1 << 30, 4);
        boot.append = "link=framed it's".into();
        let shown = boot.shown(Path::new("qemu"));
        assert!(shown.contains("-kernel 'a b/image'"), "{shown}");
        assert!(shown.contains(r"-append 'link=framed it'\''s'"), "{shown}");
        assert!(shown.contains("-smp 4"), "{shown}");
        assert!(shown.contains("-m 1024M"), "{shown}");
        assert!(!shown.contains("icount"), "{shown}");
    }

    #[test]
    fn a_board_is_as_it_is() {
        let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 2);
        boot.board = Board::Rpi4;
        boot.dtb = Some("pi.dtb".into());
        let shown = boot.shown(Path::new("qemu"));
        assert!(shown.contains("-machine raspi4b") && shown.contains("-dtb pi.dtb"), "{shown}");
        assert!(["-cpu", "-smp", "-m "].iter().all(|option| !shown.contains(option)), "{shown}");
    }

    #[test]
    fn a_pc_is_asked_for_by_its_name() {
        let mut boot = Boot::new("h.elf".into(), "b".into(), 1 << 30, 2);
        (boot.board, boot.cpu) = (Board::Microvm, "EPYC,-x2apic".to_owned());
        let shown = boot.shown(Path::new("qemu"));
        let machine = "-machine microvm \\\n    -cpu EPYC,-x2apic \\\n    -smp 2 \\\n    -m 1024M";
        assert!(shown.contains(machine) && shown.contains("-kernel h.elf"), "{shown}");
        assert!(!shown.contains("gic") && !shown.contains("virtualization"), "{shown}");
        boot.virtualization = false;
        assert!(boot.shown(Path::new("qemu")).contains("-cpu EPYC,-x2apic,-svm"));
    }

    #[test]
    fn a_power_machine_has_a_long_bundle_behind_its_firmware() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("a,bundle");
        let shown = |length: u64| {
            std::fs::File::create(&bundle).unwrap().set_len(length).unwrap();
            let mut boot = Boot::new("i".into(), bundle.clone(), 4 << 30, 1);
            boot.board = Board::Powernv9;
            boot.shown(Path::new("qemu"))
        };
        let short = shown(128 << 20);
        assert!(short.contains("-initrd") && short.contains("-append link=framed "), "{short}");
        let long = shown((128 << 20) + 1);
        assert!(
            !long.contains("-initrd") && long.contains("link=framed bundle=0x40000000+0x8000001"),
            "{long}"
        );
        assert!(
            long.contains("-device loader,force-raw=on,addr=0x40000000,file=") && long.contains("a,,bundle")
        );
    }

    #[test]
    fn network_cards_are_on_networks_of_qemus_own() {
        let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
        assert!(!boot.shown(Path::new("qemu")).contains("-netdev"));
        boot.cards = vec![NetworkCard::E1000e, NetworkCard::Virtio];
        boot.forwards = vec![Forward { host: 2222, guest: 22 }, Forward { host: 8080, guest: 80 }];
        let shown = boot.shown(Path::new("qemu"));
        let first = "-netdev user,id=net0,hostfwd=tcp:127.0.0.1:2222-:22,hostfwd=tcp:127.0.0.1:8080-:80 ";
        assert!(shown.contains(first) && shown.contains("-netdev user,id=net1 "), "{shown}");
        assert!(shown.contains("-device e1000e,netdev=net0,romfile="), "{shown}");
        assert!(shown.contains("-device virtio-net-pci,netdev=net1,romfile="), "{shown}");
        boot.wired = true;
        let shown = boot.shown(Path::new("qemu"));
        assert!(!shown.contains("user,id="), "{shown}");
        assert!(["net0", "net1"].iter().all(|net| shown.contains(&format!("hubport,id={net},hubid=0 "))));
        boot.board = Board::Powernv9;
        let shown = boot.shown(Path::new("qemu"));
        let bridge = "-device pnv-phb,id=phb1,chip-id=0,index=1 ";
        assert!(
            shown.contains(bridge) && shown.contains("-device pnv-phb-root-port,id=port1,bus=phb1 "),
            "{shown}"
        );
        assert!(shown.contains("-device e1000e,netdev=net0,romfile=,bus=port0"), "{shown}");
        assert!(shown.contains("netdev=net1,romfile=,bus=port1"), "{shown}");
    }

    #[test]
    fn disks_are_behind_controllers_and_a_flush_reaches_their_files() {
        let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
        let behind = |file: &str, is_qcow2, read_only| {
            Some(Behind::File { file: file.into(), is_qcow2, read_only, serial: "root".into() })
        };
        boot.cards = vec![NetworkCard::Virtio];
        boot.drives = [
            (DriveKind::Nvme, 0, None),
            (DriveKind::Nvme, 1, behind("a,b.img", false, false)),
            (DriveKind::Virtio, 0, behind("c.qcow2", true, true)),
        ]
        .map(|(kind, number, behind)| Drive { kind, number, behind })
        .into();
        let shown = boot.shown(Path::new("qemu"));
        let all = [
            "-drive if=none,id=nvme0,driver=null-co,size=1M ",
            "-device nvme,drive=nvme0,serial=none ",
            // Of QEMU's modes, `unsafe` alone leaves out what a flush asks for, and the others with a cache of this computer's are this one.
            "-drive if=none,id=nvme1,format=raw,cache=writeback,file=a,,b.img ",
            "-device nvme,drive=nvme1,serial=root ",
            "-drive if=none,id=virtio0,format=qcow2,cache=writeback,readonly=on,file=c.qcow2 ",
            "-device virtio-blk-pci,drive=virtio0,serial=root,disable-legacy=on ",
        ];
        let places: Vec<_> = all.iter().map(|words| shown.find(words).expect(words)).collect();
        assert!(places.is_sorted(), "numbers are those of PCI addresses: {shown}");
        assert!(!shown.contains("iommu"), "{shown}");
        boot.iommu = true;
        let shown = boot.shown(Path::new("qemu"));
        assert!(shown.contains("dtb-randomness=off,iommu=smmuv3 "), "{shown}");
        let behind = "disable-legacy=on,iommu_platform=on ";
        assert!(shown.contains(&format!("-device virtio-net-pci,netdev=net0,romfile=,{behind}")), "{shown}");
        assert!(
            shown.contains(&format!("-device virtio-blk-pci,drive=virtio0,serial=root,{behind}")),
            "{shown}"
        );
        assert!(shown.contains("-device nvme,drive=nvme0,serial=none "), "it has no say: {shown}");
        boot.board = Board::Q35;
        let shown = boot.shown(Path::new("qemu"));
        let iommu = shown.find("-device amd-iommu,intremap=on,pt=off ").unwrap();
        assert!(iommu < shown.find("virtio-net-pci").unwrap(), "before what is behind it: {shown}");
        boot.iommu = false;
        assert!(!boot.shown(Path::new("qemu")).contains("amd-iommu"));
        boot.board = Board::Powernv9;
        let shown = boot.shown(Path::new("qemu"));
        assert!(shown.contains("-device nvme,drive=nvme1,serial=root,bus=port2 "), "{shown}");
        assert!(shown.contains("-device pnv-phb,id=phb3,chip-id=0,index=3 "), "behind the cards: {shown}");
    }

    #[test]
    fn without_hypervisor_mode_a_power_machine_is_a_partition() {
        let mut boot = Boot::new("vmlinux".into(), "initrd".into(), 1 << 30, 2);
        boot.board = Board::Powernv10;
        assert!(boot.shown(Path::new("qemu")).contains("-machine powernv10 \\\n    -smp 2"));
        boot.virtualization = false;
        let shown = boot.shown(Path::new("qemu"));
        assert!(shown.contains("-machine pseries,x-vof=on,ic-mode=xive \\\n    -cpu power10"), "{shown}");
        assert!(!shown.contains("ipmi"), "{shown}");
    }

    #[test]
    fn cpus_of_a_pc_take_turns() {
        let single = |board, cpus, counted, extra: &[&str]| {
            let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, cpus);
            (boot.board, boot.counted) = (board, counted);
            boot.extra = extra.iter().map(OsString::from).collect();
            boot.shown(Path::new("qemu")).matches("-accel tcg,thread=single").count()
        };
        for board in [Board::Q35, Board::Pc, Board::Microvm] {
            assert_eq!((single(board, 2, false, &[]), single(board, 64, false, &[])), (1, 1), "{board:?}");
            assert_eq!(single(board, 1, false, &[]), 0, "there is nobody to race with");
            assert_eq!(single(board, 2, true, &[]), 1, "counted runs say so already");
            assert_eq!(single(board, 2, false, &["-accel", "tcg"]), 0, "somebody wants it otherwise");
        }
        assert_eq!((single(Board::Virt, 4, false, &[]), single(Board::Powernv9, 4, false, &[])), (0, 0));
    }

    #[test]
    fn counted_runs_are_repeatable() {
        let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
        boot.counted = true;
        let shown = boot.shown(Path::new("qemu"));
        for word in ["shift=0,sleep=off", "thread=single", "dtb-randomness=off", "clock=vm"] {
            assert!(shown.contains(word), "{shown}");
        }
    }
}
