// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual machine control block (APM vol. 2, appendix B), one page of a vCPU.
//!
//! The CPU may keep parts of it from one VMRUN to the next, as far as their clean bits say that nobody has changed them
//! (15.15). The run loop sets all clean bits after each exit; the functions here that write a field clear its part's bit.
//! So whoever changes a field cannot forget it, and an exit that changes nothing but RAX and RIP reloads nothing. Fields
//! that have no clean bit are plain.

use alloc::boxed::Box;

mod values;

pub use values::{FLUSH_ASID, FLUSH_EVERYTHING, FLUSH_NOTHING, Segment, attribute, event, interrupt, part};

/// The control area (table B-1).
#[repr(C)]
struct Control {
    cr_intercepts: u32,
    dr_intercepts: u32,
    exception_intercepts: u32,
    intercepts: [u32; 3],
    reserved_18: [u32; 9],
    pause_threshold: u16,
    pause_count: u16,
    iopm: u64,
    msrpm: u64,
    tsc_offset: u64,
    asid: u32,
    tlb_control: u8,
    reserved_5d: [u8; 3],
    interrupts: u32,
    interrupt_vector: u32,
    interrupt_shadow: u64,
    exit_code: u64,
    exit_info: [u64; 2],
    exit_interrupt: u64,
    nested_paging: u64,
    reserved_98: [u64; 2],
    event: u64,
    nested_root: u64,
    lbr: u64,
    clean: u32,
    reserved_c4: u32,
    next_rip: u64,
    fetched: u8,
    bytes: [u8; 15],
    reserved_e0: [u64; 100],
}

/// The state save area (table B-2).
#[repr(C)]
struct Save {
    es: Segment,
    cs: Segment,
    ss: Segment,
    ds: Segment,
    fs: Segment,
    gs: Segment,
    gdtr: Segment,
    ldtr: Segment,
    idtr: Segment,
    tr: Segment,
    reserved_a0: [u8; 43],
    cpl: u8,
    reserved_cc: u32,
    efer: u64,
    reserved_d8: [u64; 14],
    cr4: u64,
    cr3: u64,
    cr0: u64,
    dr7: u64,
    dr6: u64,
    rflags: u64,
    rip: u64,
    reserved_180: [u64; 11],
    rsp: u64,
    reserved_1e0: [u64; 3],
    rax: u64,
    star: u64,
    lstar: u64,
    cstar: u64,
    sfmask: u64,
    kernel_gs_base: u64,
    sysenter: [u64; 3],
    cr2: u64,
    reserved_248: [u64; 4],
    pat: u64,
    debug_control: u64,
    reserved_278: [u64; 13],
    spec_ctrl: u64,
    reserved_2e8: [u64; 291],
}

/// The control block of a vCPU. `vectors.S` knows where the exit code and the clean bits are.
#[repr(C, align(4096))]
pub struct Vmcb {
    control: Control,
    save: Save,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Vmcb, control.pause_threshold) == 0x3c);
    assert!(offset_of!(Vmcb, control.iopm) == 0x40);
    assert!(offset_of!(Vmcb, control.asid) == 0x58);
    assert!(offset_of!(Vmcb, control.interrupts) == 0x60);
    assert!(offset_of!(Vmcb, control.exit_code) == 0x70);
    assert!(offset_of!(Vmcb, control.nested_paging) == 0x90);
    assert!(offset_of!(Vmcb, control.event) == 0xa8);
    assert!(offset_of!(Vmcb, control.clean) == 0xc0);
    assert!(offset_of!(Vmcb, control.fetched) == 0xd0);
    assert!(offset_of!(Vmcb, save) == 0x400);
    assert!(offset_of!(Vmcb, save.cpl) == 0x4cb);
    assert!(offset_of!(Vmcb, save.efer) == 0x4d0);
    assert!(offset_of!(Vmcb, save.cr4) == 0x548);
    assert!(offset_of!(Vmcb, save.rflags) == 0x570);
    assert!(offset_of!(Vmcb, save.rsp) == 0x5d8);
    assert!(offset_of!(Vmcb, save.rax) == 0x5f8);
    assert!(offset_of!(Vmcb, save.cr2) == 0x640);
    assert!(offset_of!(Vmcb, save.pat) == 0x668);
    assert!(offset_of!(Vmcb, save.spec_ctrl) == 0x6e0);
    assert!(size_of::<Vmcb>() == 4096);
};

/// Makes functions to read and write fields. With a part, the writer clears its clean bit.
macro_rules! fields {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $area:ident.$field:ident $([$index:literal])? $(, $part:ident)?;)*) => {
        impl Vmcb {$(
            $(#[$doc])*
            #[inline(always)] // One load.
            pub fn $get(&self) -> $type {
                self.$area.$field $([$index])?
            }

            #[doc = concat!("Sets what [`Vmcb::", stringify!($get), "`] returns.")]
            #[inline(always)] // One or two stores.
            pub fn $set(&mut self, value: $type) {
                self.$area.$field $([$index])? = value;
                $(self.control.clean &= !part::$part;)?
            }
        )*}
    };
}

fields! {
    /// Intercepts of reads (low half) and writes (high half) of control registers.
    cr_intercepts, set_cr_intercepts: u32 = control.cr_intercepts, INTERCEPTS;
    /// Intercepts of reads and writes of debug registers.
    dr_intercepts, set_dr_intercepts: u32 = control.dr_intercepts, INTERCEPTS;
    /// Intercepts of exceptions, by vector.
    exception_intercepts, set_exception_intercepts: u32 = control.exception_intercepts, INTERCEPTS;
    /// The three words of other intercepts ([`super::intercept`]).
    intercepts, set_intercepts: [u32; 3] = control.intercepts, INTERCEPTS;
    /// PAUSEs farther apart than this start the count again.
    pause_threshold, set_pause_threshold: u16 = control.pause_threshold, INTERCEPTS;
    /// How many PAUSEs pass before one is intercepted.
    pause_count, set_pause_count: u16 = control.pause_count, INTERCEPTS;
    /// Physical address of the map of ports.
    iopm, set_iopm: u64 = control.iopm, PERMISSION_MAPS;
    /// Physical address of the map of MSRs.
    msrpm, set_msrpm: u64 = control.msrpm, PERMISSION_MAPS;
    /// What is added to the time-stamp counter.
    tsc_offset, set_tsc_offset: u64 = control.tsc_offset, INTERCEPTS;
    /// Address space identifier.
    asid, set_asid: u32 = control.asid, ASID;
    /// What the next VMRUN flushes; it stays what it is.
    tlb_control, set_tlb_control: u8 = control.tlb_control;
    /// Virtual interrupts ([`interrupt`]).
    interrupts, set_interrupts: u32 = control.interrupts, INTERRUPTS;
    /// The vector of the pending virtual interrupt.
    interrupt_vector, set_interrupt_vector: u32 = control.interrupt_vector, INTERRUPTS;
    /// Bit 0: the next instruction is in an interrupt shadow.
    interrupt_shadow, set_interrupt_shadow: u64 = control.interrupt_shadow;
    /// Why the guest was left.
    exit_code, set_exit_code: u64 = control.exit_code;
    /// EXITINFO1 and 2.
    exit_info, set_exit_info: [u64; 2] = control.exit_info;
    /// The event whose delivery was cut short by the exit ([`event`]).
    exit_interrupt, set_exit_interrupt: u64 = control.exit_interrupt;
    /// Bit 0: nested paging.
    nested_paging, set_nested_paging: u64 = control.nested_paging, NESTED_PAGING;
    /// The event that the next VMRUN delivers ([`event`]).
    event, set_event: u64 = control.event;
    /// Physical address of the root of the nested page tables.
    nested_root, set_nested_root: u64 = control.nested_root, NESTED_PAGING;
    /// The parts that are unchanged since the last VMRUN ([`part`]).
    clean, set_clean: u32 = control.clean;
    /// The address of the next instruction ([`super::Features::NEXT_RIP`]).
    next_rip, set_next_rip: u64 = control.next_rip;
    /// ES.
    es, set_es: Segment = save.es, SEGMENTS;
    /// CS.
    cs, set_cs: Segment = save.cs, SEGMENTS;
    /// SS.
    ss, set_ss: Segment = save.ss, SEGMENTS;
    /// DS.
    ds, set_ds: Segment = save.ds, SEGMENTS;
    /// FS as VMSAVE has left it.
    fs, set_fs: Segment = save.fs;
    /// GS as VMSAVE has left it.
    gs, set_gs: Segment = save.gs;
    /// GDTR: base and limit.
    gdtr, set_gdtr: Segment = save.gdtr, TABLES;
    /// LDTR as VMSAVE has left it.
    ldtr, set_ldtr: Segment = save.ldtr;
    /// IDTR: base and limit.
    idtr, set_idtr: Segment = save.idtr, TABLES;
    /// TR as VMSAVE has left it.
    tr, set_tr: Segment = save.tr;
    /// Current privilege level.
    cpl, set_cpl: u8 = save.cpl, SEGMENTS;
    /// EFER, with SVME as VMRUN demands.
    efer, set_efer: u64 = save.efer, CONTROL_REGISTERS;
    /// CR4.
    cr4, set_cr4: u64 = save.cr4, CONTROL_REGISTERS;
    /// CR3.
    cr3, set_cr3: u64 = save.cr3, CONTROL_REGISTERS;
    /// CR0.
    cr0, set_cr0: u64 = save.cr0, CONTROL_REGISTERS;
    /// DR7.
    dr7, set_dr7: u64 = save.dr7, DEBUG_REGISTERS;
    /// DR6.
    dr6, set_dr6: u64 = save.dr6, DEBUG_REGISTERS;
    /// RFLAGS.
    rflags, set_rflags: u64 = save.rflags;
    /// RIP.
    rip, set_rip: u64 = save.rip;
    /// RSP.
    rsp, set_rsp: u64 = save.rsp;
    /// RAX.
    rax, set_rax: u64 = save.rax;
    /// STAR as VMSAVE has left it.
    star, set_star: u64 = save.star;
    /// LSTAR as VMSAVE has left it.
    lstar, set_lstar: u64 = save.lstar;
    /// CSTAR as VMSAVE has left it.
    cstar, set_cstar: u64 = save.cstar;
    /// SFMASK as VMSAVE has left it.
    sfmask, set_sfmask: u64 = save.sfmask;
    /// KernelGSBase as VMSAVE has left it.
    kernel_gs_base, set_kernel_gs_base: u64 = save.kernel_gs_base;
    /// SYSENTER_CS, ESP and EIP as VMSAVE has left them.
    sysenter, set_sysenter: [u64; 3] = save.sysenter;
    /// CR2.
    cr2, set_cr2: u64 = save.cr2, CR2;
    /// The guest's PAT.
    pat, set_pat: u64 = save.pat, NESTED_PAGING;
    /// DEBUGCTL.
    debug_control, set_debug_control: u64 = save.debug_control;
    /// The guest's SPEC_CTRL, where VMRUN switches it ([`super::Features::VIRTUAL_SPEC_CTRL`]).
    spec_ctrl, set_spec_ctrl: u64 = save.spec_ctrl;
}

impl Vmcb {
    /// Where the exit code is.
    #[cfg(target_os = "none")]
    pub const EXIT_CODE: usize = core::mem::offset_of!(Vmcb, control.exit_code);

    /// Makes an empty control block.
    pub const fn new() -> Self {
        // SAFETY: integers, for which zeros are a value.
        unsafe { core::mem::zeroed() }
    }

    /// Makes an empty control block where it stays: not on a stack, of which it would be an eighth.
    pub fn boxed() -> Box<Self> {
        // SAFETY: as in `new`.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// The bytes of the instruction that faulted, the first one lowest, and how many the hardware has fetched: none without
    /// [`super::Features::DECODE_ASSISTS`].
    #[inline(always)] // A few loads.
    pub fn fetched_code(&self) -> (u128, usize) {
        let count = usize::from(self.control.fetched & 15);
        let mut bytes = [0; 16];
        bytes[..15].copy_from_slice(&self.control.bytes);
        (u128::from_le_bytes(bytes), count)
    }

    /// The hardware has fetched these bytes.
    #[cfg(test)]
    pub fn set_fetched_code(&mut self, code: &[u8]) {
        self.set_fetched_count(15);
        self.control.bytes[..code.len()].copy_from_slice(code);
    }

    /// The hardware has fetched so many bytes.
    #[cfg(test)]
    pub fn set_fetched_count(&mut self, count: u8) {
        self.control.fetched = count;
    }

    /// The first eight of the bytes that the hardware has fetched at RIP, if it has all of an instruction.
    #[inline(always)] // A load and a branch, another load.
    pub fn fetched_whole(&self) -> Option<u64> {
        let [bytes @ .., _, _, _, _, _, _, _] = self.control.bytes;
        (self.control.fetched == 15).then_some(u64::from_le_bytes(bytes))
    }

    /// Where RAX is.
    #[inline(always)] // An address.
    pub fn rax_place(&mut self) -> *mut u64 {
        &raw mut self.save.rax
    }

    /// Says whether the guest executes 64-bit code.
    #[inline(always)] // Two loads and two branches.
    pub fn is_long(&self) -> bool {
        self.save.cs.attributes & attribute::LONG != 0 && self.save.efer & crate::cpu::regs::efer::LMA != 0
    }
}

impl Default for Vmcb {
    fn default() -> Self {
        Self::new()
    }
}
