// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted. The lines are those of the seed's table, which are KVM's tracepoints; beside them is what Turnstile's
//! statistics call the same.

use std::collections::BTreeMap;

use serde::Serialize;
use turnstile_exitstat::{Event, Reason};

use crate::top::reading::VmReading;

/// Where Turnstile's count of a line is.
#[derive(Clone, Copy, Debug)]
enum Own {
    /// All exits. There is an entry for each.
    All,
    /// The exits of these reasons.
    Reasons(&'static [Reason]),
    /// These events.
    Events(&'static [Event]),
    /// There is no such thing.
    Nothing,
}

/// A line of the table: its name, which is a tracepoint's without `kvm_`, and Turnstile's count.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The name.
    pub name: &'static str,
    own: Own,
}

const fn line(name: &'static str, own: Own) -> Line {
    Line { name, own }
}

/// All lines, in the seed's order.
pub const LINES: [Line; 22] = [
    line("entry", Own::All),
    line("hypercall", Own::Reasons(&[Reason::Hypercall])),
    line("pio", Own::Events(&[Event::PortRead, Event::PortWrite])),
    line("cpuid", Own::Reasons(&[Reason::Identification])),
    line("apic", Own::Events(&[Event::ApicRead, Event::ApicWrite])),
    line("exit", Own::All),
    line("inj_virq", Own::Events(&[Event::Injected])),
    line("inj_exception", Own::Events(&[Event::InjectedException])),
    line("page_fault", Own::Reasons(&[Reason::DataAbort, Reason::InstructionAbort])),
    line("msr", Own::Events(&[Event::MsrRead, Event::MsrWrite])),
    line("cr", Own::Reasons(&[Reason::ControlRegister])),
    line("pic_set_irq", Own::Events(&[Event::PicRaised])),
    line("apic_ipi", Own::Events(&[Event::Ipi])),
    line("apic_accept_irq", Own::Events(&[Event::Accepted])),
    line("eoi", Own::Events(&[Event::EoiMsr, Event::EoiPage, Event::PvEoi])),
    line("pv_eoi", Own::Events(&[Event::PvEoi])),
    line("emulate_insn", Own::Events(&[Event::Decoded, Event::DecodedBefore])),
    line("userspace_exit", Own::Nothing),
    line("ioapic_set_irq", Own::Events(&[Event::IoApicRaised])),
    line("ack_irq", Own::Events(&[Event::IoApicEoi])),
    line("mmio", Own::Events(&[Event::MmioRead, Event::MmioWrite])),
    line("fpu", Own::Events(&[Event::FpLoaded])),
];

/// What the guest says of its load: the line `@load`, of Linux `turnstile: load interrupts=…`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Interrupts that it took.
    pub interrupts: u64,
    /// Interrupts that it ended without a write. Linux does not count them.
    pub spared: Option<u64>,
}

impl Load {
    /// Reads the line; others are `None`.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        let fields = line.strip_prefix("@load ").or_else(|| line.strip_prefix("turnstile: load "))?;
        let field = |name: &str| {
            let mut values =
                fields.split_whitespace().filter_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            values.next()?.parse().ok()
        };
        Some(Load { interrupts: field("interrupts")?, spared: field("spared") })
    }

    /// What is left of it without that of another run.
    pub fn without(self, other: Load) -> Self {
        Load {
            interrupts: self.interrupts.saturating_sub(other.interrupts),
            spared: self.spared.zip(other.spared).map(|(own, other)| own.saturating_sub(other)),
        }
    }
}

/// What happened in one second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// What the guest says.
    pub load: Load,
    /// By the lines of the table.
    pub lines: BTreeMap<String, u64>,
    /// Exits by their reasons.
    pub reasons: BTreeMap<String, u64>,
    /// Ends of interrupts that were none, because QEMU delivered an interrupt twice; see docs/src/pv-eoi.md.
    pub doubled: u64,
}

impl Counts {
    /// The count of a line.
    pub fn line(&self, name: &str) -> u64 {
        self.lines.get(name).copied().unwrap_or_default()
    }

    /// All exits.
    pub fn exits(&self) -> u64 {
        self.line("exit")
    }

    /// Turnstile's counts: those of a run with the load, less those of a run without, which starts and ends alike.
    pub fn of_turnstile(load: Load, with: &VmReading, without: &VmReading) -> Self {
        let reason =
            |reason: Reason| with.exits(reason).count().saturating_sub(without.exits(reason).count());
        let happened = |reading: &VmReading, event: Event| -> u64 {
            reading.vcpus.iter().filter_map(|vcpu| vcpu.events.get(event.name())).sum()
        };
        let event = |event| happened(with, event).saturating_sub(happened(without, event));
        let exits = || Reason::ALL.iter().copied().filter(|reason| *reason != Reason::Start);
        let count = |own: Own| -> u64 {
            match own {
                Own::All => exits().map(reason).sum(),
                Own::Reasons(reasons) => reasons.iter().copied().map(reason).sum(),
                Own::Events(events) => events.iter().copied().map(event).sum(),
                Own::Nothing => 0,
            }
        };
        Counts {
            load,
            lines: LINES.iter().map(|line| (line.name.to_owned(), count(line.own))).collect(),
            reasons: exits()
                .map(|of| (of.name().to_owned(), reason(of)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            doubled: 0,
        }
    }

    /// KVM's counts, from the lines that the monitor writes: `@event`, `@exit` and `@eoi`.
    pub fn of_kvm(load: Load, said: &str) -> Self {
        let mut counts = Counts { load, ..Counts::default() };
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[kind, what, number] = words.as_slice() else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match kind {
                "@event" => {
                    counts.lines.insert(what.strip_prefix("kvm_").unwrap_or(what).to_owned(), number);
                }
                "@exit" => {
                    counts.reasons.insert(svm_exit(what), number);
                }
                // No vector was in service.
                "@eoi" if what == NO_VECTOR => counts.doubled = number,
                _ => {}
            }
        }
        counts
    }
}

const NO_VECTOR: &str = "0xffffffffffffffff";

/// The name of an EXITCODE (AMD APM vol. 2, appendix C), as far as a load has them.
fn svm_exit(code: &str) -> String {
    let name = match code {
        "0x60" => "intr",
        "0x61" => "nmi",
        "0x64" => "vintr",
        "0x72" => "cpuid",
        "0x78" => "hlt",
        "0x7b" => "ioio",
        "0x7c" => "msr",
        "0x81" => "vmmcall",
        "0x400" => "npf",
        other => other,
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::collector::tests::example;

    #[test]
    fn the_guests_line_is_read() {
        let line = "@load milliseconds=1000 cpus=1 interrupts=22026 timer=4011 ipi=13002 spared=15\r";
        assert_eq!(Load::parse(line), Some(Load { interrupts: 22026, spared: Some(15) }));
        let line = "turnstile: load interrupts=23239 timer=7541 ipi=12023 device=3675\r";
        assert_eq!(Load::parse(line), Some(Load { interrupts: 23239, spared: None }));
        assert_eq!(Load::parse("turnstile: load begin"), None);
        assert_eq!(Load::parse("@done load"), None);
        assert_eq!(Load::parse("@load interrupts=many spared=0"), None);
    }

    #[test]
    fn kvms_tracepoints_become_lines() {
        let said = "@event kvm_exit 48507\r\n@event vcpu_match_mmio 12\n@exit 0x7c 35035\n@exit 0x33 1\n\
                    @eoi 0x51 4011\n@eoi 0xffffffffffffffff 9\n@event kvm_bad x\n@end\n";
        let counts = Counts::of_kvm(Load::default(), said);
        assert_eq!((counts.exits(), counts.line("vcpu_match_mmio"), counts.line("bad")), (48507, 12, 0));
        assert_eq!((counts.reasons["msr"], counts.reasons["0x33"]), (35035, 1));
        assert_eq!(counts.doubled, 9);
    }

    #[test]
    fn turnstiles_statistics_become_lines() {
        let reading = example();
        let linux = &reading.vms[0];
        let counts = Counts::of_turnstile(Load::default(), linux, &VmReading::default());
        assert_eq!((counts.line("hypercall"), counts.line("pv_eoi"), counts.line("eoi")), (6, 21, 21));
        assert_eq!((counts.exits(), counts.line("entry")), (7, 7), "a kick, too");
        let nothing = Counts::of_turnstile(Load::default(), linux, linux);
        assert!(nothing.lines.values().all(|count| *count == 0) && nothing.reasons.is_empty());
    }

    #[test]
    fn lines_have_names_of_their_own() {
        let mut names: Vec<&str> = LINES.iter().map(|line| line.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LINES.len());
    }
}
