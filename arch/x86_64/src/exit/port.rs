// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IN and OUT (APM vol. 2, 15.10.2): EXITINFO1 says which, EXITINFO2 is the address of the next instruction on every CPU.

use turnstile_exitstat::Event;
use turnstile_x86insn::decode::Prefixes;

use super::access::{self, Access, Failed};
use super::keep::keep;
use super::tier::{Code, control, executed_to};
use super::{pci, service};
use crate::cpu::regs::flags;
use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::{Frame, number, resident};
use crate::vcpu::irq;
use crate::vcpu::next::{Next, skip_to};
use crate::vcpu::statistics;
use crate::vm::monitor::Monitor;
use crate::vm::{Vcpu, Vm};

/// EXITINFO1 of an access to a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port(u64);

impl Port {
    /// The access that has left the guest.
    #[inline(always)] // One load.
    pub fn of(vmcb: &Vmcb) -> Self {
        Self(vmcb.exit_info()[0])
    }

    /// The port.
    #[inline(always)] // One shift.
    pub const fn number(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// IN or INS.
    #[inline(always)] // One test.
    pub const fn is_read(self) -> bool {
        self.0 & 1 != 0
    }

    /// INS or OUTS.
    #[inline(always)] // One test.
    pub const fn is_string(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// REP.
    pub const fn is_repeated(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// 1, 2 or 4 bytes.
    #[inline(always)] // Two instructions.
    pub const fn size(self) -> u8 {
        (self.0 >> 4) as u8 & 7
    }
}

/// Puts what was read into AL, AX or EAX: a write of EAX clears the high half of RAX.
#[inline(always)] // A few instructions.
pub(super) fn merge(rax: u64, size: u8, value: u64) -> u64 {
    match size {
        1 => rax & !0xff | value & 0xff,
        2 => rax & !0xffff | value & 0xffff,
        _ => value & 0xffff_ffff,
    }
}

/// Nothing answers: all ones, as on a bus with pull-up resistors.
pub(super) const ABSENT: u64 = u64::MAX;

/// What EXITINFO1 has of IN from a mask register of the 8259s, a byte: port 21h, or A1h. Bit 23 tells them apart.
const MASK_READ: u32 = 0x21 << 16 | 1 << 4 | 1;
const MASK_READ_BITS: u32 = 0xff7f << 16 | 0x75;
const SECOND: u64 = 1 << 23;

/// The read that guests do most, by itself. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, rsi: u64, rdx: u64) -> u32 {
    if !N::COUNTS && control(frame).exit_info()[0] as u32 & MASK_READ_BITS == MASK_READ {
        return mask_register::<N>(frame, rsi, rdx);
    }
    others::<N>(frame, rsi, rdx)
}

keep! {
    /// A mask register.
    mask_register => read_mask: rdx 48, r8 24
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn read_mask<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let (vcpu, vmcb) = (resident(frame), control(frame));
    let [info, next] = vmcb.exit_info();
    if vcpu.owned(|owned| owned.lapic.owes_acknowledge()) {
        return Code::FULL;
    }
    let Some(value) = vcpu.vm.read_mask(info & SECOND != 0) else { return Code::FULL };
    vmcb.set_rax(merge(vmcb.rax(), 1, value.into()));
    executed_to::<N>(frame, vmcb, next)
}

keep! {
    /// The ports of the devices that are in the hypervisor itself, byte by byte, and those without a device; the rest is left to the
    /// full tier.
    others => any: rsi 40, rdx 48, r8 24, r9 16, r10 8, r11 0
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn any<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    answer::<N>(frame, control(frame))
}

/// The same for who has the control block.
#[inline(always)] // One caller, but for ablation.
pub(super) fn answer<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let port = Port::of(vmcb);
    statistics::count::<N>(resident(frame), if port.is_read() { Event::PortRead } else { Event::PortWrite });
    let vcpu = resident(frame);
    let [_, next] = vmcb.exit_info();
    if port.is_string() {
        return Code::FULL;
    }
    if Vm::has_port(port.number()) {
        return own::<N>(frame, vmcb);
    }
    if vcpu.vm.ports.has(port.number()) {
        return served::<N>(frame, vmcb);
    }
    // Nothing is there: what is written is lost.
    if port.is_read() {
        vmcb.set_rax(merge(vmcb.rax(), port.size(), ABSENT));
    }
    executed_to::<N>(frame, vmcb, next)
}

/// A port of the devices that are in the hypervisor itself.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Uses all registers, which other ports are not to pay for.
fn own<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let (vcpu, port, next) = (resident(frame), Port::of(vmcb), vmcb.exit_info()[1]);
    if port.size() != 1 {
        return Code::FULL;
    }
    irq::before_port(vcpu, vmcb);
    let vm = vcpu.vm;
    if port.is_read() {
        let value = vm.read_port(port.number());
        vmcb.set_rax(merge(vmcb.rax(), 1, value.into()));
    } else {
        vm.write_port(port.number(), vmcb.rax() as u8);
    }
    executed_to::<N>(frame, vmcb, next)
}

/// A port of a device that a service serves; others are left to the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Uses all registers, which other ports are not to pay for.
fn served<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let (vcpu, port, next) = (resident(frame), Port::of(vmcb), vmcb.exit_info()[1]);
    let Some(found) = service::at_port(vcpu, port.number()) else { return Code::FULL };
    irq::before_port(vcpu, vmcb);
    // Without a branch, so that the code that enters a service is here once.
    let size = port.size();
    let event = found.event(port.is_read(), size, vmcb.rax());
    let queue = found.doorbell(event.0[4]);
    if !port.is_read() & queue.is_some() {
        found.ring(vcpu, queue.unwrap_or(0));
        if N::COUNTS {
            found.account(frame, true);
        }
        return executed_to::<N>(frame, vmcb, next);
    }
    // Who counts has time for a call.
    let value = if N::COUNTS { found.access_fully(vcpu, &event) } else { found.access(vcpu, &event) };
    if port.is_read() {
        vmcb.set_rax(merge(vmcb.rax(), size, value));
    }
    if N::COUNTS {
        found.account(frame, false);
    }
    executed_to::<N>(frame, vmcb, next)
}

/// All others.
pub(super) fn full(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let (port, next) = (Port::of(vmcb), vmcb.exit_info()[1]);
    irq::before_port(vcpu, vmcb);
    if port.is_string() {
        return string(frame, Access { vmcb, vcpu, monitor }, port, next);
    }
    if port.is_read() {
        let value = read(vcpu, monitor, port);
        vmcb.set_rax(merge(vmcb.rax(), port.size(), value));
    } else {
        write(vcpu, monitor, port, vmcb.rax());
    }
    skip_to(vmcb, next);
}

fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 }
}

fn read(vcpu: &'static Vcpu, monitor: &dyn Monitor, port: Port) -> u64 {
    if Vm::has_port(port.number()) {
        // Wider accesses are several.
        return (0..port.size()).rev().fold(0, |value, at| {
            let number = port.number().wrapping_add(at.into());
            value << 8
                | u64::from(if Vm::has_port(number) { vcpu.vm.read_port(number) } else { ABSENT as u8 })
        });
    }
    match monitor.port_read(vcpu.vm, port.number(), port.size()) {
        Some(value) => value,
        None => read_other(vcpu, port),
    }
}

/// Reads a port that no device has.
#[cold]
#[inline(never)] // Devices are not to pay for it.
fn read_other(vcpu: &'static Vcpu, port: Port) -> u64 {
    pci::read_port(vcpu, port.number(), port.size()).unwrap_or(ABSENT)
}

fn write(vcpu: &'static Vcpu, monitor: &dyn Monitor, port: Port, value: u64) {
    if Vm::has_port(port.number()) {
        for at in 0..port.size() {
            let number = port.number().wrapping_add(at.into());
            if Vm::has_port(number) {
                vcpu.vm.write_port(number, (value >> (8 * at)) as u8);
            }
        }
        return;
    }
    let value = value & mask(port.size());
    if !monitor.port_write(vcpu, port.number(), port.size(), value) {
        pci::write_port(vcpu, port.number(), port.size(), value);
    }
}

/// Elements that are moved before the vCPU looks at its interrupts again.
const BATCH: u64 = 128;

/// INS and OUTS.
struct Strings {
    port: Port,
    /// The bits of address registers that count.
    addresses: u64,
    /// The segment of what is in memory.
    segment: u8,
    /// The register with the offset there.
    index: usize,
}

impl Strings {
    fn of(access: &Access<'_>, port: Port) -> Self {
        let code = access::fetch(access.vmcb, &access.vcpu.vm.life().ram);
        let prefixes = code.map_or(Prefixes::default(), |(code, valid)| Prefixes::of(code, valid));
        let size = match (access::bitness(access.vmcb), prefixes.address_size) {
            (64, false) => 8,
            (64, true) | (32, false) | (16, true) => 4,
            _ => 2,
        };
        let (segment, index) = if port.is_read() {
            (access::ES, number::RDI)
        } else {
            (prefixes.segment.unwrap_or(access::DS), number::RSI)
        };
        Self { port, addresses: mask(size), segment, index }
    }

    /// Moves one element.
    fn element(&self, frame: &mut Frame, access: &mut Access<'_>) -> Result<(), Failed> {
        let (port, offset) = (self.port, frame.get(access.vmcb, self.index) & self.addresses);
        let found = service::at_port(access.vcpu, port.number());
        if port.is_read() {
            // The store may fault: nothing may have been read by then that the device would miss.
            access.probe(self.segment, offset, port.size(), true)?;
            let value = match found {
                Some(found) => {
                    let value = found.access_fully(access.vcpu, &found.event(true, port.size(), 0));
                    found.account(frame, false);
                    value
                }
                None => read(access.vcpu, access.monitor, port),
            };
            access.store(self.segment, offset, port.size(), value)?;
        } else {
            let value = access.load(self.segment, offset, port.size())?;
            match found {
                Some(found) => {
                    found.write_fully(access.vcpu, port.size(), value);
                    found.account(frame, true);
                }
                None => write(access.vcpu, access.monitor, port, value),
            }
        }
        let size = u64::from(port.size());
        let down = access.vmcb.rflags() & flags::DIRECTION != 0;
        self.add(frame, access.vmcb, self.index, if down { size.wrapping_neg() } else { size });
        if port.is_repeated() {
            self.add(frame, access.vmcb, number::RCX, u64::MAX);
        }
        Ok(())
    }

    /// Adds to a register, of which the address size is what changes.
    fn add(&self, frame: &mut Frame, vmcb: &mut Vmcb, register: usize, difference: u64) {
        let old = frame.get(vmcb, register);
        let sum = old.wrapping_add(difference) & self.addresses;
        // A register of four bytes clears the others.
        let kept = if self.addresses == 0xffff { old & !0xffff } else { 0 };
        frame.set(vmcb, register, kept | sum);
    }
}

/// INS and OUTS (APM vol. 3), repeated or not: a batch of elements. If some are left, the instruction is executed again.
fn string(frame: &mut Frame, mut access: Access<'_>, port: Port, next: u64) {
    let strings = Strings::of(&access, port);
    let count = frame.get(access.vmcb, number::RCX) & strings.addresses;
    let most = if port.is_repeated() { count.min(BATCH) } else { 1 };
    let mut done = 0;
    // A service may take its time for each: what else this CPU has to do comes between them.
    while done < most && (done == 0 || !access.vcpu.attention.is_pending()) {
        if let Err(failed) = strings.element(frame, &mut access) {
            return failed.inject(access.vmcb);
        }
        done += 1;
    }
    if !port.is_repeated() || count == done {
        skip_to(access.vmcb, next);
    }
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn what_is_read_leaves_the_rest_of_the_register() {
        const RAX: u64 = 0x1111_2222_3333_4444;
        let merged = [1, 2, 4].map(|size| merge(RAX, size, 0xaabb_ccdd));
        assert_eq!(merged, [0x1111_2222_3333_44dd, 0x1111_2222_3333_ccdd, 0xaabb_ccdd]);
    }
}
