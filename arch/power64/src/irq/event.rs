// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event state buffers: two bits for each source, P (an event is on its way) and Q (another one came meanwhile), behind pages
//! whose loads and stores change them (OPAL's `doc/xive.rst`; offsets as in Linux' `xive-regs.h`).

/// Loading sets P and Q to 01: events are ignored.
const SET_OFF: u64 = 0xd00;
/// Loading sets P and Q to 00: the next event is sent.
const SET_RESET: u64 = 0xc00;
/// Loading sets P and Q to 10: no event is sent.
const SET_PENDING: u64 = 0xe00;
/// Loading changes nothing.
const GET: u64 = 0x800;
/// In what is loaded: P and Q, as they were.
const P: u64 = 1 << 1;
const Q: u64 = 1;
/// Offsets at which a page has registers.
const PAGE: u64 = 0xffff;

/// Loads from a page of management, which is one of an interrupt source of the machine.
pub(super) fn load(page: u64, offset: u64) -> u64 {
    #[cfg(target_os = "none")]
    // SAFETY: a page of an event state buffer: at any offset, a load changes nothing but the source's two bits.
    return unsafe { crate::cpu::inhibited::load64(page + (offset & PAGE & !7)) };
    #[cfg(not(target_os = "none"))]
    {
        let _ = (page, offset & PAGE);
        crate::cpu::regs::fakes::read("ESB")
    }
}

/// Stores to a page of management or of triggers, which is one of an interrupt source of the machine.
pub(super) fn store(page: u64, offset: u64, value: u64) {
    #[cfg(target_os = "none")]
    // SAFETY: as for `load`, or an event of the source.
    unsafe {
        crate::cpu::inhibited::store64(page + (offset & PAGE & !7), value);
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = (page, offset & PAGE);
        crate::cpu::regs::fakes::write("ESB", value);
    }
}

/// The source has an event.
pub(super) fn trigger(page: u64) {
    store(page, 0, 0);
}

/// Events of the source are ignored from now on.
pub(super) fn off(page: u64) {
    load(page, SET_OFF);
}

/// The source's next event is sent.
pub(super) fn arm(page: u64) {
    load(page, SET_RESET);
}

/// Says whether events of the source are held back.
pub(super) fn is_held(page: u64) -> bool {
    load(page, GET) & P != 0
}

/// Events of the source are held back from now on: one that comes sets Q.
pub(super) fn hold(page: u64) {
    load(page, SET_PENDING);
}

/// The source's next event is sent. True if one was held back.
pub(super) fn release(page: u64) -> bool {
    load(page, SET_RESET) & Q != 0
}
