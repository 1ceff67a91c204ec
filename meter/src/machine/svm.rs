// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD SVM: why and where a guest was left, as the VMCB says it (AMD APM vol. 2, sections 15.5 and 15.6, appendices B
//! and C).

use super::{Exit, Machine, Reason, Register};

/// Offsets in the VMCB: the word of intercepts with that of VMRUN, which must be set; the ASID, which must not be zero;
/// EXITCODE; the guest's RIP.
const INTERCEPTS: u64 = 0x010;
const INTERCEPT_VMRUN: u64 = 1;
const ASID: u64 = 0x058;
const EXITCODE: u64 = 0x070;
const RIP: u64 = 0x578;

/// VMRUN's operand is a physical address. A plugin reads memory as the CPU sees it, so this is where hypervisors see
/// all of physical memory: Linux with four and with five levels of tables (Documentation/arch/x86/x86_64/mm.rst),
/// Xen (its memory layout in asm-x86/config.h), and whoever maps it one to one.
const DIRECT_MAPS: [u64; 4] = [0xffff_8880_0000_0000, 0xff11_0000_0000_0000, 0xffff_8300_0000_0000, 0];

/// How the guest was left, at the first block behind VMRUN. `None` if no VMCB is to be seen.
pub fn exit(machine: &mut impl Machine) -> Option<Exit> {
    let physical = machine.read(Register::Rax)?;
    let vmcb = DIRECT_MAPS.iter().map(|map| map.wrapping_add(physical)).find(|&at| is_vmcb(machine, at))?;
    let reason = Reason::Vmexit(machine.memory(vmcb + EXITCODE)?);
    let pc = machine.memory(vmcb + RIP)?;
    Some(Exit { reason, pc, vectors: 0, synchronous: false })
}

/// Whether what lies there can be a VMCB that VMRUN has accepted.
fn is_vmcb(machine: &mut impl Machine, at: u64) -> bool {
    let has = |value: Option<u64>, mask: u64| value.is_some_and(|value| value & mask != 0);
    has(machine.memory(at + INTERCEPTS), INTERCEPT_VMRUN) && has(machine.memory(at + ASID), 0xffff_ffff)
}

/// The name of an EXITCODE.
pub fn name(code: u64) -> Option<&'static str> {
    Some(match code {
        0x000..=0x00f => "cr-read",
        0x010..=0x01f => "cr-write",
        0x020..=0x02f => "dr-read",
        0x030..=0x03f => "dr-write",
        0x040..=0x05f => "exception",
        // The name that a physical interrupt has on every architecture.
        0x060 => "irq",
        0x061 => "nmi",
        0x062 => "smi",
        0x063 => "init",
        0x064 => "vintr",
        0x06e => "rdtsc",
        0x072 => "cpuid",
        0x075 => "swint",
        0x077 => "pause",
        0x078 => "hlt",
        0x079 => "invlpg",
        0x07b => "ioio",
        0x07c => "msr",
        0x07d => "task-switch",
        0x07f => "shutdown",
        0x080 => "vmrun",
        0x081 => "vmmcall",
        0x08d => "xsetbv",
        0x400 => "npf",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::Fake;

    const VMCB: u64 = 0x12_3000;

    fn machine(map: u64) -> Fake {
        let mut machine = Fake::default();
        machine.set(Register::Rax, VMCB);
        for (offset, value) in [(INTERCEPTS, 0x3), (ASID, 1), (EXITCODE, 0x81), (RIP, 0x20_0010)] {
            machine.memory.push((map + VMCB + offset, value));
        }
        machine
    }

    #[test]
    fn the_vmcb_says_why_and_where() {
        for map in DIRECT_MAPS {
            let exit = exit(&mut machine(map)).unwrap();
            assert_eq!((exit.reason, exit.pc), (Reason::Vmexit(0x81), 0x20_0010));
            assert_eq!((exit.reason.to_string().as_str(), exit.synchronous), ("vmmcall", false));
        }
    }

    #[test]
    fn what_is_no_vmcb_is_not_taken_for_one() {
        assert_eq!(exit(&mut Fake::default()), None);
        let mut machine = machine(0);
        machine.memory.retain(|&(at, _)| at != VMCB + ASID);
        assert_eq!(exit(&mut machine), None);
    }

    #[test]
    fn exits_without_a_name_have_a_number() {
        assert_eq!(Reason::Vmexit(0x60).to_string(), "irq");
        assert_eq!(Reason::Vmexit(0xffff_ffff_ffff_ffff).to_string(), "exit-0xffffffffffffffff");
    }
}
