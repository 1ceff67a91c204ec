// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line. On a host of its own, the words behind `--` of the kernel's command line become it.

use std::path::PathBuf;

use clap::Parser;

use crate::console::Marks;

/// What the monitor is to do.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "turnstile-vmm", about = "Runs a measuring guest of Turnstile on Linux KVM")]
pub struct Options {
    /// The guest: an arm64 Image; on x86-64 an ELF file with a PVH entry, or a Linux
    /// bzImage; on POWER an ELF file
    #[arg(long, value_name = "FILE", required_unless_present_any = ["symbols", "monitors"])]
    pub guest: Option<PathBuf>,
    /// The guest's command line
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub cmdline: String,
    /// vCPUs, each a thread on a CPU of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub vcpus: usize,
    /// Use so many of the host's CPUs; vCPUs that are left share the last of them
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    pub cpus: usize,
    /// Give the guest a PMU (arm64)
    #[arg(long)]
    pub pmu: bool,
    /// What is particular to Armv8-A
    #[cfg(target_arch = "aarch64")]
    #[command(flatten)]
    pub board: crate::arm64::options::Board,
    /// What is particular to POWER
    #[cfg(all(target_arch = "powerpc64", target_os = "linux"))]
    #[command(flatten)]
    pub partition: crate::power64::options::Partition,
    /// What is particular to x86-64
    #[cfg(target_arch = "x86_64")]
    #[command(flatten)]
    pub pc: crate::x86_64::options::Pc,
    /// Wait this many seconds first, so that the host has finished what it does after its boot
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub settle: u64,
    /// Let a thread that is woken wait until the running one waits, as vCPUs of equal real-time priority do. It needs a
    /// host of its own
    #[arg(long)]
    pub take_turns: bool,
    /// Have a doorbell at this address, whose thread runs on the last of the host's CPUs
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub doorbell: Option<u64>,
    /// Count cycles between the guest's marks
    #[arg(long)]
    pub cycles: bool,
    /// Count what KVM does between the guest's marks
    #[arg(long)]
    pub events: bool,
    /// The guest's line behind which counting begins
    #[arg(long, value_name = "LINE", default_value = "@begin")]
    pub begin: String,
    /// The guest's line behind which counting ends; without one, at the guest's next byte
    #[arg(long, value_name = "LINE")]
    pub end: Option<String>,
    /// Run no guest, but other monitors, each with a guest of one vCPU: the file has their commands, a word in each line and an
    /// empty line behind each
    #[arg(long, value_name = "FILE")]
    pub monitors: Option<PathBuf>,
    /// Run no guest: write the kernel's functions (`address type name`) to this device
    #[arg(long, value_name = "DEVICE")]
    pub symbols: Option<PathBuf>,
    /// Words of the kernel's command line that it handed on because it does not know them; they mean nothing here
    #[arg(hide = true)]
    pub others: Vec<String>,
}

/// Reads an address: a number, in hexadecimal behind `0x`.
fn address(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

impl Options {
    /// The lines between which is counted.
    pub fn marks(&self) -> Marks {
        Marks { begin: self.begin.clone(), end: self.end.clone() }
    }

    /// How many of the host's CPUs the vCPUs run on.
    pub fn host_cpus(&self) -> usize {
        self.vcpus.min(self.cpus).max(1)
    }

    /// The host's CPU that the thread of a doorbell runs on.
    pub fn doorbell_cpu(&self) -> usize {
        // Without a number there are as many as vCPUs.
        if self.cpus == usize::MAX { self.vcpus.saturating_sub(1) } else { self.cpus.saturating_sub(1) }
    }

    /// The host's CPU that a vCPU runs on.
    pub fn cpu(&self, vcpu: usize) -> usize {
        vcpu.min(self.cpus.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("/init").chain(words.iter().copied()))
    }

    #[test]
    fn reads_what_a_kernel_hands_on() {
        let options = parse(&[
            "nokaslr",
            "--guest=/guest",
            "--vcpus=2",
            "--cmdline=iterations=64 batches",
            "--settle=5",
        ]);
        let options = options.unwrap();
        assert_eq!(options.guest, Some("/guest".into()));
        assert_eq!((options.vcpus, options.settle, options.pmu), (2, 5, false));
        assert_eq!([0, 1, 7].map(|vcpu| options.cpu(vcpu)), [0, 1, 7]);
        assert_eq!(options.cmdline, "iterations=64 batches");
    }

    #[test]
    fn vcpus_that_are_left_share_a_cpu() {
        let options = parse(&["--guest=/guest", "--vcpus=32", "--cpus=2"]).unwrap();
        assert_eq!([0, 1, 2, 31].map(|vcpu| options.cpu(vcpu)), [0, 1, 1, 1]);
        assert_eq!(parse(&["--guest=/guest", "--cpus=0"]).unwrap().cpu(1), 0);
    }

    #[test]
    fn a_doorbell_has_an_address() {
        let options = parse(&["--guest=/guest", "--doorbell=0xfed80000", "--cpus=2"]).unwrap();
        assert_eq!((options.doorbell, options.doorbell_cpu(), options.cpu(0)), (Some(0xfed8_0000), 1, 0));
        assert_eq!(parse(&["--guest=/guest", "--vcpus=3"]).unwrap().doorbell_cpu(), 2);
        assert!(parse(&["--guest=/guest", "--doorbell=there"]).is_err());
    }

    #[test]
    fn marks_are_ours_unless_a_guest_has_others() {
        let marks = |words: &[&str]| parse(&[&["--guest=/guest"], words].concat()).unwrap().marks();
        assert_eq!(marks(&[]), Marks { begin: "@begin".to_owned(), end: None });
        let others = Marks { begin: "load begin".to_owned(), end: Some("load end".to_owned()) };
        assert_eq!(marks(&["--begin=load begin", "--end=load end"]), others);
    }

    #[test]
    fn a_guest_is_needed_unless_symbols_are_asked_for() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--symbols=/dev/vport0p1"]).is_ok());
        assert!(parse(&["--guest=/guest", "--vcpus=two"]).is_err());
    }
}
