// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an instruction that is carried out for the guest does in the guest's memory: segments, page tables, RAM and devices.

use core::cell::Cell;

use turnstile_x86insn::walk::{self, Failure, Intent, Paging, locate, translate};

use super::bus;
use crate::cpu::regs::{self, cr4};
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::event::Exception;
use crate::cpu::svm::vmcb::{Segment, attribute};
use crate::memory::{GuestRam, user};
use crate::state::walks::Root;
use crate::vcpu::switch;
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Numbers of segments in instructions (APM vol. 3, 1.4.2).
pub(super) const ES: u8 = 0;
const CS: u8 = 1;
const SS: u8 = 2;
pub(super) const DS: u8 = 3;
const FS: u8 = 4;

/// Why an instruction is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The guest takes an exception.
    Fault(Exception),
    /// The pool has no block for memory that it names: it is executed again.
    Dry,
}

impl From<Exception> for Failed {
    fn from(exception: Exception) -> Self {
        Self::Fault(exception)
    }
}

impl Failed {
    /// Lets the guest take the exception, if it is one. Nothing of the instruction has been done.
    pub fn inject(self, vmcb: &mut Vmcb) {
        if let Self::Fault(exception) = self {
            exception.inject(vmcb);
        }
    }
}

/// The guest's page tables in its RAM.
pub(super) struct Tables<'a>(pub &'a GuestRam);

impl walk::Memory for Tables<'_> {
    #[inline(always)] // Once per level of a fetch.
    fn read(&self, address: u64, size: u8) -> Option<u64> {
        // An entry is aligned, so that it is in one page.
        let host = self.0.host_in_page(address)?;
        // SAFETY: RAM of the VM, which runs.
        Some(unsafe { if size == 8 { user::read_u64(host) } else { user::read_u32(host).into() } })
    }

    fn set_bits(&self, address: u64, size: u8, entry: u64, bits: u64) -> bool {
        let Some(host) = self.0.host(address, size.into()) else { return false };
        // SAFETY: RAM of the VM, which runs; entries are aligned.
        unsafe {
            if size == 8 {
                user::exchange_u64(host, entry, entry | bits) == entry
            } else {
                user::exchange_u32(host, entry as u32, (entry | bits) as u32) == entry as u32
            }
        }
    }
}

/// The same, which notes whether the pool had no block for an entry.
struct Watched<'a> {
    tables: Tables<'a>,
    dry: Cell<bool>,
}

impl walk::Memory for Watched<'_> {
    #[inline] // As above, of data.
    fn read(&self, address: u64, size: u8) -> Option<u64> {
        let entry = self.tables.read(address, size);
        if entry.is_none() {
            self.dry.set(self.tables.0.is_dry(address, size.into()));
        }
        entry
    }

    fn set_bits(&self, address: u64, size: u8, entry: u64, bits: u64) -> bool {
        self.tables.set_bits(address, size, entry, bits)
    }
}

/// How the guest translates addresses of code, which has no protection keys.
#[inline(always)] // A few loads.
pub(super) fn paging(vmcb: &Vmcb) -> Paging {
    Paging {
        cr0: vmcb.cr0(),
        cr3: vmcb.cr3(),
        cr4: vmcb.cr4(),
        efer: vmcb.efer(),
        rflags: vmcb.rflags(),
        pkru: 0,
        physical_bits: crate::cpu::svm::physical_bits(),
    }
}

/// How the guest translates addresses of data.
fn data_paging(vmcb: &Vmcb) -> Paging {
    let pkru = if vmcb.cr4() & cr4::PKE != 0 { regs::pkru() } else { 0 };
    Paging { pkru, ..paging(vmcb) }
}

/// The bits of the code that the guest executes.
pub(super) fn bitness(vmcb: &Vmcb) -> u32 {
    if vmcb.is_long() {
        64
    } else if vmcb.cs().attributes & attribute::BIG != 0 {
        32
    } else {
        16
    }
}

/// Bytes of code at RIP: what the hardware has fetched, or 64-bit code that does not reach into the next page. HOT.
#[inline(always)] // Part of the light exit of an access to a device.
pub(super) fn fetch_light(vmcb: &Vmcb, vcpu: &'static Vcpu) -> Option<u128> {
    let (code, count) = vmcb.fetched_code();
    if count == turnstile_x86insn::MAX_LENGTH {
        return Some(code);
    }
    let rip = vmcb.rip();
    if !vmcb.is_long() || rip & (PAGE - 1) > PAGE - 16 {
        return None;
    }
    let root = Root::of(vmcb);
    let known = vcpu.owned(|owned| owned.walks.find(rip, root));
    let host = if let Some(host) = known { host } else { walk_to_code(vmcb, vcpu, root)? };
    // SAFETY: RAM of the VM, which runs.
    let [low, high] = unsafe { user::read_pair(host) };
    Some(u128::from(high) << 64 | u128::from(low))
}

/// Finds 64-bit code at RIP by a walk, and notes that.
#[inline(never)] // So that a walk that was done before costs little.
fn walk_to_code(vmcb: &Vmcb, vcpu: &'static Vcpu, root: Root) -> Option<u64> {
    let ram = &vcpu.vm.life().ram;
    let (rip, mut entries, mut count) = (vmcb.rip(), [[0; 2]; 5], 0);
    let address = locate(&paging(vmcb), &Tables(ram), rip, |address, entry| {
        if let Some(place) = entries.get_mut(count) {
            *place = [address, entry];
        }
        count += 1;
    })?;
    let host = ram.host_in_page(address)?;
    if let Some(entries) = entries.get(..count) {
        vcpu.owned(|owned| owned.walks.note(rip, root, entries, host, ram));
    }
    Some(host)
}

/// Bytes of code at RIP, and how many there are. `None` if the guest's tables have changed since the hardware has fetched
/// them: executed again, the instruction faults as it should.
pub(super) fn fetch(vmcb: &Vmcb, ram: &GuestRam) -> Option<(u128, usize)> {
    let (code, count) = vmcb.fetched_code();
    if count != 0 {
        return Some((code, count));
    }
    let linear = code_address(vmcb);
    let mut bytes = [0; 16];
    let first = usize::try_from(PAGE - linear % PAGE).unwrap_or(16).min(16);
    let user = vmcb.cpl() == 3;
    let read = |linear, bytes: &mut [u8]| {
        let address = translate(&paging(vmcb), &Tables(ram), linear, Intent::Fetch, user).ok()?;
        let host = ram.host(address, bytes.len() as u64)?;
        // SAFETY: RAM of the VM, which runs.
        unsafe { user::copy_from(host, bytes) };
        Some(())
    };
    read(linear, &mut bytes[..first])?;
    let second = wrap(vmcb, linear.wrapping_add(first as u64));
    let whole = first == 16 || read(second, &mut bytes[first..]).is_some();
    Some((u128::from_le_bytes(bytes), if whole { 16 } else { first }))
}

fn code_address(vmcb: &Vmcb) -> u64 {
    if vmcb.is_long() {
        vmcb.rip()
    } else {
        wrap(vmcb, vmcb.cs().base.wrapping_add(vmcb.rip() & 0xffff_ffff))
    }
}

/// Linear addresses have 32 bits outside 64-bit mode, in compatibility mode, too (APM vol. 2, 1.3.2).
fn wrap(vmcb: &Vmcb, linear: u64) -> u64 {
    if vmcb.is_long() { linear } else { linear & 0xffff_ffff }
}

/// A segment register as it is now: FS and GS are in the CPU.
fn segment(vmcb: &mut Vmcb, number: u8) -> Segment {
    match number {
        ES => vmcb.es(),
        CS => vmcb.cs(),
        SS => vmcb.ss(),
        DS => vmcb.ds(),
        _ => {
            switch::save_hidden(vmcb);
            if number == FS { vmcb.fs() } else { vmcb.gs() }
        }
    }
}

/// The linear address of `size` bytes, at least one, in a segment (APM vol. 2, 4.12).
fn linear(vmcb: &mut Vmcb, number: u8, offset: u64, size: u8, write: bool) -> Result<u64, Exception> {
    let fault = if number == SS { Exception::STACK } else { Exception::PROTECTION };
    if vmcb.is_long() {
        let base = if number >= FS { segment(vmcb, number).base } else { 0 };
        let address = base.wrapping_add(offset);
        let last = address.wrapping_add(u64::from(size) - 1);
        return if is_canonical(vmcb, address) && is_canonical(vmcb, last) {
            Ok(address)
        } else {
            Err(fault)
        };
    }
    let segment = segment(vmcb, number);
    let offset = offset & 0xffff_ffff;
    let protected = vmcb.cr0() & crate::cpu::regs::cr0::PE != 0;
    if protected && !permits(segment.attributes, write) || !covers(segment, offset, size) {
        return Err(fault);
    }
    Ok(wrap(vmcb, segment.base.wrapping_add(offset)))
}

fn is_canonical(vmcb: &Vmcb, address: u64) -> bool {
    let unused = if vmcb.cr4() & cr4::LA57 != 0 { 7 } else { 16 };
    ((address << unused) as i64 >> unused) as u64 == address
}

/// Whether a segment lets data be read or written.
const fn permits(attributes: u16, write: bool) -> bool {
    let code = attributes & attribute::CODE != 0;
    let marked = attributes & attribute::WRITABLE != 0;
    attributes & attribute::PRESENT != 0 && if write { !code && marked } else { !code || marked }
}

/// Whether the bytes are within the limit.
fn covers(segment: Segment, offset: u64, size: u8) -> bool {
    let last = offset + u64::from(size) - 1;
    let data_down = segment.attributes & (attribute::CODE | attribute::EXPAND_DOWN) == attribute::EXPAND_DOWN;
    if data_down {
        let top = if segment.attributes & attribute::BIG != 0 { 0xffff_ffff } else { 0xffff };
        offset > u64::from(segment.limit) && last <= top
    } else {
        last <= u64::from(segment.limit)
    }
}

/// A vCPU whose instruction is carried out.
pub(super) struct Access<'a> {
    /// Its control block.
    pub vmcb: &'a mut Vmcb,
    /// The vCPU.
    pub vcpu: &'static Vcpu,
    /// What the hypervisor has of devices.
    pub monitor: &'a dyn Monitor,
}

impl Access<'_> {
    /// The physical addresses of `size` bytes: in one page, or in two with the bytes in the first.
    fn places(&mut self, number: u8, offset: u64, size: u8, write: bool) -> Result<[(u64, u8); 2], Failed> {
        let linear = linear(self.vmcb, number, offset, size, write)?;
        let first = (PAGE - linear % PAGE).min(size.into()) as u8;
        let begin = self.physical(linear, write)?;
        let rest = size - first;
        let second = wrap(self.vmcb, linear.wrapping_add(first.into()));
        let next = if rest == 0 { 0 } else { self.physical(second, write)? };
        let places = [(begin, first), (next, rest)];
        let ram = &self.vcpu.vm.life().ram;
        let is_dry = |(address, size): &(u64, u8)| ram.is_dry(*address, (*size).into());
        // Before anything is done that cannot be done again.
        if ram.pooled().is_some() && places.iter().any(is_dry) {
            return Err(Failed::Dry);
        }
        Ok(places)
    }

    fn physical(&self, linear: u64, write: bool) -> Result<u64, Failed> {
        let intent = if write { Intent::Write } else { Intent::Read };
        let tables = Watched { tables: Tables(&self.vcpu.vm.life().ram), dry: Cell::new(false) };
        translate(&data_paging(self.vmcb), &tables, linear, intent, self.vmcb.cpl() == 3).map_err(|failure| {
            match failure {
                Failure::PageFault(code) => Exception::page_fault(linear, code).into(),
                Failure::Outside if tables.dry.get() => Failed::Dry,
                Failure::Outside => Exception::PROTECTION.into(),
            }
        })
    }

    /// Reads at an offset in a segment.
    pub fn load(&mut self, number: u8, offset: u64, size: u8) -> Result<u64, Failed> {
        let [(begin, first), (next, rest)] = self.places(number, offset, size, false)?;
        let low = bus::read(self.vcpu, self.vmcb, begin, first);
        let high = if rest == 0 { 0 } else { bus::read(self.vcpu, self.vmcb, next, rest) };
        Ok(low | high.checked_shl(u32::from(first) * 8).unwrap_or(0))
    }

    /// Finds out whether an access to all bytes at an offset in a segment faults.
    pub fn probe(&mut self, number: u8, offset: u64, size: u8, write: bool) -> Result<(), Failed> {
        self.places(number, offset, size, write).map(|_| ())
    }

    /// Writes at an offset in a segment.
    pub fn store(&mut self, number: u8, offset: u64, size: u8, value: u64) -> Result<(), Failed> {
        let [(begin, first), (next, rest)] = self.places(number, offset, size, true)?;
        bus::write(self.vcpu, self.vmcb, begin, first, value);
        if rest != 0 {
            let high = value.checked_shr(u32::from(first) * 8).unwrap_or(0);
            bus::write(self.vcpu, self.vmcb, next, rest, high);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
